//! What a terminal types: a transaction of the mix, with its inputs (clauses 2.4.1 to 2.8.1, 5.2.3).
//!
//! Relies on [`TpccRandom`]; the same seed gives the same inputs, whichever policy they meet.

use super::database_size::{DISTRICTS, DatabaseSize};
use super::random::{TpccRandom, last_name};

/// The kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum TransactionType {
    /// An order comes in.
    NewOrder,
    /// A customer pays.
    Payment,
    /// A customer asks for the last order.
    OrderStatus,
    /// Ten orders go out.
    Delivery,
    /// How many kinds of stock run low.
    StockLevel,
}

impl TransactionType {
    /// All of them.
    pub const EVERY: [Self; 5] = [Self::NewOrder, Self::Payment, Self::OrderStatus, Self::Delivery, Self::StockLevel];

    /// As figures name it.
    pub fn name(self) -> &'static str {
        match self {
            Self::NewOrder => "new_order",
            Self::Payment => "payment",
            Self::OrderStatus => "order_status",
            Self::Delivery => "delivery",
            Self::StockLevel => "stock_level",
        }
    }

    /// Of a hundred transactions, how many are of this kind.
    fn share(self) -> usize {
        match self {
            Self::NewOrder => 45,
            Self::Payment => 43,
            Self::OrderStatus | Self::Delivery | Self::StockLevel => 4,
        }
    }
}

/// A customer by number, or by last name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CustomerKey {
    /// The number.
    Number(i32),
    /// The name.
    Name(String),
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct OrderLine {
    /// The warehouse that supplies it.
    pub supplier: i32,
    /// What.
    pub item: i32,
    /// How many.
    pub quantity: i32,
}

/// A transaction with its inputs. Warehouse and district are the terminal's unless said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Transaction {
    /// An order of `customer`.
    NewOrder {
        /// In which district.
        district: i32,
        /// Who orders.
        customer: i32,
        /// What is ordered. The last line of one order in a hundred names an item that doesn't exist.
        lines: Vec<OrderLine>,
    },
    /// A payment taken in `district`.
    Payment {
        /// Where it is taken.
        district: i32,
        /// The customer's warehouse.
        of_warehouse: i32,
        /// The customer's district.
        of_district: i32,
        /// Who pays.
        customer: CustomerKey,
        /// How much.
        cents: i64,
    },
    /// What became of the last order?
    OrderStatus {
        /// In which district.
        district: i32,
        /// Who asks.
        customer: CustomerKey,
    },
    /// The oldest order of each district goes out.
    Delivery {
        /// With whom.
        carrier: i32,
    },
    /// How many kinds of stock run low?
    StockLevel {
        /// In the terminal's own district.
        district: i32,
        /// Below what.
        threshold: i32,
    },
}

impl Transaction {
    /// The kind.
    pub fn kind(&self) -> TransactionType {
        match self {
            Self::NewOrder { .. } => TransactionType::NewOrder,
            Self::Payment { .. } => TransactionType::Payment,
            Self::OrderStatus { .. } => TransactionType::OrderStatus,
            Self::Delivery { .. } => TransactionType::Delivery,
            Self::StockLevel { .. } => TransactionType::StockLevel,
        }
    }
}

/// Draws transactions: from a deck of a hundred cards in the mix's shares, shuffled again when it is empty.
#[derive(Clone, Debug)]
pub struct TransactionDeck {
    size: DatabaseSize,
    home: i32,
    own_district: i32,
    random: TpccRandom,
    deck: Vec<TransactionType>,
}

impl TransactionDeck {
    /// The deck of terminal number `terminal`, which belongs to a warehouse and a district.
    pub fn new(size: DatabaseSize, terminal: u32, seed: u64) -> Self {
        let home = terminal % size.warehouses + 1;
        let own_district = terminal / size.warehouses % DISTRICTS + 1;
        let random = TpccRandom::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(terminal)));
        Self { size, home: home as i32, own_district: own_district as i32, random, deck: Vec::new() }
    }

    /// The terminal's warehouse.
    pub fn home(&self) -> i32 {
        self.home
    }

    /// The next transaction.
    pub fn draw(&mut self) -> Transaction {
        if self.deck.is_empty() {
            self.deck =
                TransactionType::EVERY.into_iter().flat_map(|kind| std::iter::repeat_n(kind, kind.share())).collect();
            self.random.shuffle(&mut self.deck);
        }
        match self.deck.pop().unwrap_or(TransactionType::NewOrder) {
            TransactionType::NewOrder => self.new_order(),
            TransactionType::Payment => self.payment(),
            TransactionType::OrderStatus => {
                let district = self.district();
                Transaction::OrderStatus { district, customer: self.customer() }
            }
            TransactionType::Delivery => Transaction::Delivery { carrier: self.random.between(1, 10) as i32 },
            TransactionType::StockLevel => {
                let threshold = self.random.between(10, 20) as i32;
                Transaction::StockLevel { district: self.own_district, threshold }
            }
        }
    }

    fn district(&mut self) -> i32 {
        self.random.between(1, DISTRICTS) as i32
    }

    fn customer(&mut self) -> CustomerKey {
        if self.random.happens(60) {
            CustomerKey::Name(last_name(self.random.last_name_in_run(self.size.last_names())))
        } else {
            CustomerKey::Number(self.random.customer(self.size.customers) as i32)
        }
    }

    /// Another warehouse, or this one if there is no other.
    fn elsewhere(&mut self) -> i32 {
        if self.size.warehouses == 1 {
            return self.home;
        }
        let other = self.random.between(1, self.size.warehouses - 1) as i32;
        if other >= self.home { other + 1 } else { other }
    }

    fn new_order(&mut self) -> Transaction {
        let district = self.district();
        let customer = self.random.customer(self.size.customers) as i32;
        let count = self.random.between(5, 15);
        let is_refused = self.random.happens(1);
        let mut lines: Vec<OrderLine> = (0..count)
            .map(|_| OrderLine {
                supplier: if self.random.happens(1) { self.elsewhere() } else { self.home },
                item: self.random.item(self.size.items) as i32,
                quantity: self.random.between(1, 10) as i32,
            })
            .collect();
        lines.sort_unstable();
        if is_refused && let Some(last) = lines.last_mut() {
            last.item = self.size.items as i32 + 1;
        }
        Transaction::NewOrder { district, customer, lines }
    }

    fn payment(&mut self) -> Transaction {
        let district = self.district();
        let (of_warehouse, of_district) =
            if self.random.happens(85) { (self.home, district) } else { (self.elsewhere(), self.district()) };
        let customer = self.customer();
        let cents = i64::from(self.random.between(100, 500_000));
        Transaction::Payment { district, of_warehouse, of_district, customer, cents }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_transactions_are_in_the_standard_mix() {
        let mut deck = TransactionDeck::new(DatabaseSize::standard(10), 3, 1);
        let kinds: Vec<TransactionType> = (0..100).map(|_| deck.draw().kind()).collect();
        let count = |wanted| kinds.iter().filter(|kind| **kind == wanted).count();
        assert_eq!(TransactionType::EVERY.map(count), [45, 43, 4, 4, 4]);
        assert_eq!(deck.home(), 4);
    }

    #[test]
    fn inputs_keep_to_their_ranges() {
        let size = DatabaseSize::small(3);
        let mut deck = TransactionDeck::new(size, 7, 2);
        let (mut refused, mut remote, mut orders) = (0, 0, 0);
        for _ in 0..20_000 {
            match deck.draw() {
                Transaction::NewOrder { lines, .. } => {
                    orders += 1;
                    assert!((5..=15).contains(&lines.len()));
                    refused += u32::from(lines.iter().any(|line| line.item > size.items as i32));
                    remote += lines.iter().filter(|line| line.supplier != deck.home()).count();
                }
                Transaction::Payment { of_warehouse, cents, .. } => {
                    assert!((1..=3).contains(&of_warehouse) && (100..=500_000).contains(&cents));
                }
                Transaction::StockLevel { district, .. } => assert_eq!(district, 3),
                Transaction::OrderStatus { district, .. } => assert!((1..=10).contains(&district)),
                Transaction::Delivery { carrier } => assert!((1..=10).contains(&carrier)),
            }
        }
        assert!((40..150).contains(&refused), "{refused} of {orders}");
        assert!((500..1500).contains(&remote), "{remote}");
    }

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let deck = || TransactionDeck::new(DatabaseSize::standard(2), 1, 9);
        let (mut one, mut other) = (deck(), deck());
        assert!((0..300).all(|_| one.draw() == other.draw()));
    }
}
