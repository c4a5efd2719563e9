//! The table of a checkpoint as it is made: areas and units, in the bytes of the file.
//!
//! Relies on an upper bound of both being known before the dump, so that nothing has to grow during it.

use std::io;
use std::ops::Range;

use zerocopy::IntoBytes;

use crate::format::{AreaEntry, PAGE_BYTES, UNIT_BYTES, UnitEntry, table_bytes};
use crate::reserved::ReservedSlice;

/// Areas first, then units, as the file has them.
pub(crate) struct DumpTable {
    bytes: ReservedSlice<u8>,
    areas: u64,
    units: u64,
}

/// Most units that `area` can have.
fn most_units(area: &Range<usize>) -> u64 {
    (area.end.div_ceil(UNIT_BYTES) - area.start / UNIT_BYTES) as u64
}

impl DumpTable {
    /// A table of these areas, without units yet.
    pub(crate) fn of(areas: impl Iterator<Item = Range<usize>> + Clone) -> io::Result<Self> {
        let (mut count, mut units) = (0, 0);
        for area in areas.clone() {
            count += 1;
            units += most_units(&area);
        }
        let bytes = table_bytes(count, units).and_then(|bytes| usize::try_from(bytes).ok());
        let mut table =
            Self { bytes: ReservedSlice::new(bytes.ok_or(io::ErrorKind::OutOfMemory)?)?, areas: count, units: 0 };
        for (number, area) in areas.enumerate() {
            let entry = AreaEntry { start: (area.start as u64).into(), end: (area.end as u64).into() };
            let at = number * size_of::<AreaEntry>();
            table.bytes[at..at + size_of::<AreaEntry>()].copy_from_slice(entry.as_bytes());
        }
        Ok(table)
    }

    /// Addresses that it works with.
    pub(crate) fn range(&self) -> Range<usize> {
        self.bytes.range()
    }

    /// Areas.
    pub(crate) fn areas(&self) -> u64 {
        self.areas
    }

    /// Units.
    pub(crate) fn units(&self) -> u64 {
        self.units
    }

    /// Adds a unit.
    pub(crate) fn add(&mut self, unit: &UnitEntry) {
        let at = self.areas as usize * size_of::<AreaEntry>() + self.units as usize * size_of::<UnitEntry>();
        self.bytes[at..at + size_of::<UnitEntry>()].copy_from_slice(unit.as_bytes());
        self.units += 1;
    }

    /// The bytes for the file: whole pages.
    pub(crate) fn bytes(&self) -> &[u8] {
        let len = table_bytes(self.areas, self.units).map_or(0, |bytes| bytes as usize);
        debug_assert!(len.is_multiple_of(PAGE_BYTES));
        &self.bytes[..len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_has_room_for_every_unit_of_its_areas() {
        let areas = [0x1000..0x2000, UNIT_BYTES - 0x1000..UNIT_BYTES + 0x1000, 4 * UNIT_BYTES..6 * UNIT_BYTES];
        assert_eq!(areas.each_ref().map(most_units), [1, 2, 2]);
        let mut table = DumpTable::of(areas.iter().cloned()).unwrap();
        let unit =
            UnitEntry { start: 7.into(), bitmap: 1.into(), checksum: 0.into(), pages: 1.into(), reserved: 0.into() };
        for _ in 0..5 {
            table.add(&unit);
        }
        assert_eq!((table.areas(), table.units(), table.bytes().len()), (3, 5, PAGE_BYTES));
    }
}
