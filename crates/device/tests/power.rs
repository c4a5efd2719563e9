//! What a power cut leaves of durable and other writes: the newest durable version of every sector, or a later one.
//!
//! Relies on `MemoryDirectory`, compared with the plainest model: all versions of each sector since the last sure one.

use proptest::prelude::*;
use quire_device::{Device, Direction, Directory, MemoryDirectory, PowerCut, Transfer};

use crate::common::*;

const BLOCKS: u8 = 6;
const SECTORS: usize = BLOCKS as usize * BLOCK / 512;

#[derive(Clone, Debug)]
enum Step {
    Write(Vec<(u8, u8)>),
    Durable(Vec<(u8, u8)>),
    Flush,
}

fn step() -> impl Strategy<Value = Step> {
    let part = (0..BLOCKS).prop_flat_map(|block| (Just(block), 1..=BLOCKS - block));
    let parts = prop::collection::vec(part, 1..3);
    prop_oneof![
        3 => parts.clone().prop_map(Step::Write),
        2 => parts.prop_map(Step::Durable),
        1 => Just(Step::Flush),
    ]
}

/// A write of `value` everywhere.
fn filled(parts: &[(u8, u8)], value: u8) -> Transfer {
    let mut transfer = transfer(Direction::Write, parts, 0, 0);
    transfer.buffer.fill(value);
    transfer
}

/// Values that each sector may have after a power cut; the first is sure unless a later one made it.
struct Model {
    versions: Vec<Vec<u8>>,
}

impl Model {
    fn sectors(parts: &[(u8, u8)]) -> impl Iterator<Item = usize> + '_ {
        let per_block = BLOCK / 512;
        parts
            .iter()
            .flat_map(move |&(block, blocks)| usize::from(block) * per_block..usize::from(block + blocks) * per_block)
    }

    fn write(&mut self, parts: &[(u8, u8)], value: u8) {
        Self::sectors(parts).for_each(|sector| self.versions[sector].push(value));
    }

    fn make_sure(&mut self, sectors: impl Iterator<Item = usize>) {
        for sector in sectors {
            let newest = *self.versions[sector].last().expect("there is always a version");
            self.versions[sector] = vec![newest];
        }
    }

    fn allows(&self, bytes: &[u8]) -> bool {
        bytes
            .chunks(512)
            .zip(&self.versions)
            .all(|(sector, versions)| versions.contains(&sector[0]) && sector.iter().all(|&byte| byte == sector[0]))
    }
}

fn start() -> (MemoryDirectory, std::sync::Arc<dyn Device>, Model) {
    let memory = MemoryDirectory::with_file("a", &vec![0; SECTORS * 512]);
    let device = memory.open_to_write("a").unwrap();
    (memory, device, Model { versions: vec![vec![0]; SECTORS] })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn a_cut_keeps_what_is_durable_and_may_drop_or_tear_the_rest(
        steps in prop::collection::vec(step(), 0..12),
        seeds in prop::collection::vec(any::<u64>(), 4),
    ) {
        let (memory, device, mut model) = start();
        for (number, step) in steps.iter().enumerate() {
            let value = number as u8 + 1;
            match step {
                Step::Write(parts) => {
                    device.run(&mut filled(parts, value)).unwrap();
                    model.write(parts, value);
                }
                Step::Durable(parts) => {
                    device.write_durable(&mut filled(parts, value)).unwrap();
                    model.write(parts, value);
                    model.make_sure(Model::sectors(parts));
                }
                Step::Flush => {
                    device.flush().unwrap();
                    model.make_sure(0..SECTORS);
                }
            }
            let seeds = seeds.iter().map(|&seed| PowerCut::KeepSome(seed));
            for cut in seeds.chain([PowerCut::LoseAll, PowerCut::KeepAll]) {
                let found = memory.after_power_cut(cut).bytes("a").unwrap();
                prop_assert!(model.allows(&found), "{:?} after {:?}", cut, &steps[..=number]);
            }
            let newest: Vec<u8> = model.versions.iter().map(|versions| *versions.last().unwrap()).collect();
            let now: Vec<u8> = contents(&*device).chunks(512).map(|sector| sector[0]).collect();
            prop_assert_eq!(now, newest);
        }
    }

    #[test]
    fn a_durable_write_cut_in_progress_may_be_there_or_not_but_leaves_earlier_ones(
        parts in prop::collection::vec((0u8..3, 1u8..3), 1..4),
        off in 0u64..6,
        seed: u64,
    ) {
        let (memory, device, mut model) = start();
        device.write_durable(&mut filled(&[(0, 2)], 1)).unwrap();
        model.write(&[(0, 2)], 1);
        model.make_sure(Model::sectors(&[(0, 2)]));
        memory.power_off_at(memory.steps() + off);
        let ended = device.write_durable(&mut filled(&parts, 2));
        model.write(&parts, 2);
        if ended.is_ok() {
            model.make_sure(Model::sectors(&parts));
        }
        prop_assert_eq!(ended.is_ok(), off > parts.len() as u64);
        for cut in [PowerCut::KeepSome(seed), PowerCut::LoseAll, PowerCut::KeepAll] {
            prop_assert!(model.allows(&memory.after_power_cut(cut).bytes("a").unwrap()), "{:?}", cut);
        }
    }
}

#[test]
fn a_durable_write_does_not_make_others_durable() {
    let (memory, device, _) = start();
    device.run(&mut filled(&[(0, 1)], 1)).unwrap();
    device.write_durable(&mut filled(&[(1, 1)], 2)).unwrap();
    let found = memory.after_power_cut(PowerCut::LoseAll).bytes("a").unwrap();
    assert_eq!((found[0], found[BLOCK]), (0, 2));
}
