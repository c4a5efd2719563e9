//! What a terminal types: a transaction of the mix, with its inputs (clauses 2.4.1 to 2.8.1, 5.2.3).
//!
//! Relies on [`Random`]; the same seed gives the same inputs, whichever policy they meet.

use super::random::{Random, last_name};
use super::size::{DISTRICTS, Size};

/// The kinds of transactions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
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

impl Kind {
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
pub enum Customer {
    /// The number.
    Number(i32),
    /// The name.
    Name(String),
}

/// A line of an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Line {
    /// The warehouse that supplies it.
    pub supplier: i32,
    /// What.
    pub item: i32,
    /// How many.
    pub quantity: i32,
}

/// A transaction with its inputs. Warehouse and district are the terminal's unless said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// An order of `customer`.
    NewOrder {
        /// In which district.
        district: i32,
        /// Who orders.
        customer: i32,
        /// What is ordered. The last line of one order in a hundred names an item that doesn't exist.
        lines: Vec<Line>,
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
        customer: Customer,
        /// How much.
        cents: i64,
    },
    /// What became of the last order?
    OrderStatus {
        /// In which district.
        district: i32,
        /// Who asks.
        customer: Customer,
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

impl Input {
    /// The kind.
    pub fn kind(&self) -> Kind {
        match self {
            Self::NewOrder { .. } => Kind::NewOrder,
            Self::Payment { .. } => Kind::Payment,
            Self::OrderStatus { .. } => Kind::OrderStatus,
            Self::Delivery { .. } => Kind::Delivery,
            Self::StockLevel { .. } => Kind::StockLevel,
        }
    }
}

/// Draws transactions: from a deck of a hundred cards in the mix's shares, shuffled again when it is empty.
#[derive(Clone, Debug)]
pub struct Hand {
    size: Size,
    home: i32,
    own_district: i32,
    random: Random,
    deck: Vec<Kind>,
}

impl Hand {
    /// The hand of terminal number `terminal`, which belongs to a warehouse and a district.
    pub fn new(size: Size, terminal: u32, seed: u64) -> Self {
        let home = terminal % size.warehouses + 1;
        let own_district = terminal / size.warehouses % DISTRICTS + 1;
        let random = Random::new(seed.wrapping_mul(1_000_003).wrapping_add(u64::from(terminal)));
        Self { size, home: home as i32, own_district: own_district as i32, random, deck: Vec::new() }
    }

    /// The terminal's warehouse.
    pub fn home(&self) -> i32 {
        self.home
    }

    /// The next transaction.
    pub fn draw(&mut self) -> Input {
        if self.deck.is_empty() {
            self.deck = Kind::EVERY.into_iter().flat_map(|kind| std::iter::repeat_n(kind, kind.share())).collect();
            self.random.shuffle(&mut self.deck);
        }
        match self.deck.pop().unwrap_or(Kind::NewOrder) {
            Kind::NewOrder => self.new_order(),
            Kind::Payment => self.payment(),
            Kind::OrderStatus => {
                let district = self.district();
                Input::OrderStatus { district, customer: self.customer() }
            }
            Kind::Delivery => Input::Delivery { carrier: self.random.between(1, 10) as i32 },
            Kind::StockLevel => {
                let threshold = self.random.between(10, 20) as i32;
                Input::StockLevel { district: self.own_district, threshold }
            }
        }
    }

    fn district(&mut self) -> i32 {
        self.random.between(1, DISTRICTS) as i32
    }

    fn customer(&mut self) -> Customer {
        if self.random.happens(60) {
            Customer::Name(last_name(self.random.last_name_in_run(self.size.last_names())))
        } else {
            Customer::Number(self.random.customer(self.size.customers) as i32)
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

    fn new_order(&mut self) -> Input {
        let district = self.district();
        let customer = self.random.customer(self.size.customers) as i32;
        let count = self.random.between(5, 15);
        let is_refused = self.random.happens(1);
        let mut lines: Vec<Line> = (0..count)
            .map(|_| Line {
                supplier: if self.random.happens(1) { self.elsewhere() } else { self.home },
                item: self.random.item(self.size.items) as i32,
                quantity: self.random.between(1, 10) as i32,
            })
            .collect();
        lines.sort_unstable();
        if is_refused && let Some(last) = lines.last_mut() {
            last.item = self.size.items as i32 + 1;
        }
        Input::NewOrder { district, customer, lines }
    }

    fn payment(&mut self) -> Input {
        let district = self.district();
        let (of_warehouse, of_district) =
            if self.random.happens(85) { (self.home, district) } else { (self.elsewhere(), self.district()) };
        let customer = self.customer();
        let cents = i64::from(self.random.between(100, 500_000));
        Input::Payment { district, of_warehouse, of_district, customer, cents }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hundred_transactions_are_in_the_standard_mix() {
        let mut hand = Hand::new(Size::standard(10), 3, 1);
        let kinds: Vec<Kind> = (0..100).map(|_| hand.draw().kind()).collect();
        let count = |wanted| kinds.iter().filter(|kind| **kind == wanted).count();
        assert_eq!(Kind::EVERY.map(count), [45, 43, 4, 4, 4]);
        assert_eq!(hand.home(), 4);
    }

    #[test]
    fn inputs_keep_to_their_ranges() {
        let size = Size::small(3);
        let mut hand = Hand::new(size, 7, 2);
        let (mut refused, mut remote, mut orders) = (0, 0, 0);
        for _ in 0..20_000 {
            match hand.draw() {
                Input::NewOrder { lines, .. } => {
                    orders += 1;
                    assert!((5..=15).contains(&lines.len()));
                    refused += u32::from(lines.iter().any(|line| line.item > size.items as i32));
                    remote += lines.iter().filter(|line| line.supplier != hand.home()).count();
                }
                Input::Payment { of_warehouse, cents, .. } => {
                    assert!((1..=3).contains(&of_warehouse) && (100..=500_000).contains(&cents));
                }
                Input::StockLevel { district, .. } => assert_eq!(district, 3),
                Input::OrderStatus { district, .. } => assert!((1..=10).contains(&district)),
                Input::Delivery { carrier } => assert!((1..=10).contains(&carrier)),
            }
        }
        assert!((40..150).contains(&refused), "{refused} of {orders}");
        assert!((500..1500).contains(&remote), "{remote}");
    }

    #[test]
    fn the_same_seed_gives_the_same_inputs() {
        let hand = || Hand::new(Size::standard(2), 1, 9);
        let (mut one, mut other) = (hand(), hand());
        assert!((0..300).all(|_| one.draw() == other.draw()));
    }
}
