//! How many rows there are: the standard's numbers, or fewer.
//!
//! Relies on nothing.

use serde::{Deserialize, Serialize};

/// Districts of a warehouse.
pub const DISTRICTS: u32 = 10;

/// The size of a database.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DatabaseSize {
    /// Warehouses: the scale factor.
    pub warehouses: u32,
    /// Items in all, and kinds of stock in each warehouse.
    pub items: u32,
    /// Customers of a district, each with one order.
    pub customers: u32,
}

impl DatabaseSize {
    /// The standard's numbers.
    pub fn standard(warehouses: u32) -> Self {
        Self { warehouses, items: 100_000, customers: 3000 }
    }

    /// A twentieth of them for tests and quick runs.
    pub fn small(warehouses: u32) -> Self {
        Self { warehouses, items: 5000, customers: 150 }
    }

    /// The first order of a district that isn't delivered yet: three tenths are not.
    pub fn first_new_order(self) -> u32 {
        self.customers * 7 / 10 + 1
    }

    /// Last names of the customers of each district.
    pub fn last_names(self) -> u32 {
        self.customers.min(1000)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_standard_has_900_new_orders_in_a_district() {
        let size = DatabaseSize::standard(10);
        assert_eq!(size.customers + 1 - size.first_new_order(), 900);
        assert_eq!((size.last_names(), DatabaseSize::small(1).last_names()), (1000, 150));
    }
}
