//! A snapshot of a table that another thread goes on updating.
//!
//! The table holds accounts, and a thread moves money between them, so that the sum over all accounts is the same between any two moves. The main
//! thread takes snapshots and adds them up while moves go on: each sum has to be right.
//!
//! ```sh
//! cargo run --release -p quire-snapshot --example table_snapshot -- 1000000
//! ```

use std::error::Error;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use quire_snapshot::{Mechanism, OriginAccess, OriginOptions, PageRange, Requirements, View, attach};

const FIRST_BALANCE: u64 = 1000;
/// An account is one word.
const ACCOUNT_BYTES: usize = 8;
/// Bytes of a snapshot that are looked at together.
const PIECE_BYTES: usize = 64 << 10;

/// Accounts in memory that snapshots are taken of.
struct Table {
    memory: OriginAccess,
    /// The mover holds it during a move; a snapshot is taken while no thread does.
    between_moves: Mutex<()>,
}

impl Table {
    fn new(accounts: usize) -> Result<Self, Box<dyn Error>> {
        let range = PageRange::allocate(accounts * ACCOUNT_BYTES)?;
        let requirements = Requirements { announces: true, ..Requirements::default() };
        let choice = Mechanism::best(&range, requirements);
        println!("mechanism: {} ({})", choice.mechanism, choice.why);
        let origin = attach(choice.mechanism, range, &OriginOptions::default())?;
        // It announces each write by itself where the mechanism wants that.
        let memory = OriginAccess::new(Arc::from(origin));
        (0..accounts).for_each(|account| memory.store_u64(account * ACCOUNT_BYTES, FIRST_BALANCE));
        Ok(Self { memory, between_moves: Mutex::new(()) })
    }

    fn move_money(&self, from: usize, to: usize, amount: u64) {
        let _moving = self.between_moves.lock().unwrap_or_else(PoisonError::into_inner);
        let (from, to) = (from * ACCOUNT_BYTES, to * ACCOUNT_BYTES);
        let paid = amount.min(self.memory.load_u64(from));
        self.memory.store_u64(from, self.memory.load_u64(from) - paid);
        self.memory.store_u64(to, self.memory.load_u64(to) + paid);
    }

    /// The table as it is now, for as long as the snapshot lives.
    fn snapshot(&self) -> Result<Arc<dyn View>, Box<dyn Error>> {
        let _stopped = self.between_moves.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(self.memory.origin().cut()?)
    }
}

/// Adds up the accounts of a snapshot.
fn sum(view: &dyn View, accounts: usize) -> Result<u64, Box<dyn Error>> {
    let (mut sum, mut at, end) = (0, 0, accounts * ACCOUNT_BYTES);
    let mut piece = vec![0; PIECE_BYTES];
    while at < end {
        let bytes = PIECE_BYTES.min(end - at);
        view.read(at, &mut piece[..bytes])?;
        let words = piece[..bytes].chunks_exact(ACCOUNT_BYTES);
        sum += words.map(|word| word.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))).sum::<u64>();
        at += bytes;
    }
    Ok(sum)
}

/// Takes `cuts` snapshots while money is moved; the number of moves that went on meanwhile.
fn run(accounts: usize, cuts: usize) -> Result<u64, Box<dyn Error>> {
    let table = Table::new(accounts)?;
    let (done, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut random = 88_172_645_463_325_252_u64;
            while !done.load(Ordering::Relaxed) {
                random ^= random << 13;
                random ^= random >> 7;
                random ^= random << 17;
                let pick = |shift: u32| (random >> shift) as usize % accounts;
                table.move_money(pick(8), pick(32), random & 255);
                moves.fetch_add(1, Ordering::Relaxed);
            }
        });
        let checked = (0..cuts).try_for_each(|cut| -> Result<(), Box<dyn Error>> {
            let view = table.snapshot()?;
            let before = moves.load(Ordering::Relaxed);
            let found = sum(&*view, accounts)?;
            let meanwhile = moves.load(Ordering::Relaxed) - before;
            println!("snapshot {cut}: sum {found}, {meanwhile} moves while it was added up");
            if found == accounts as u64 * FIRST_BALANCE { Ok(()) } else { Err(format!("{found} is wrong").into()) }
        });
        done.store(true, Ordering::Relaxed);
        checked
    })
    .map(|()| moves.into_inner())
}

fn main() -> Result<(), Box<dyn Error>> {
    let accounts = std::env::args().nth(1).map_or(Ok(1_000_000), |word| word.parse())?;
    if accounts == 0 {
        return Err("usage: table_snapshot [ACCOUNTS]".into());
    }
    let moves = run(accounts, 5)?;
    println!("{moves} moves in all; every sum was right");
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_snapshot_adds_up_while_money_is_moved() {
        super::run(50_000, 3).unwrap();
    }
}
