//! Unions, intersections and differences of sorted sets and sets: sums by the order of adding, indexes, the sign of 0.

use std::collections::BTreeMap;

use quire_store::set::SetOperation;
use quire_store::zset::{self, Aggregate};
use quire_store::{Store, StoreError, set};

use crate::common::zsets::{Members, ZERO, all, set_scores, store_of};

#[test]
fn sets_are_combined_as_if_their_scores_were_one() {
    let mut store = store_of(128);
    for member in [&b"1"[..], b"2", b"x"] {
        set::open_mut(&mut store, ZERO, b"ints").unwrap().add(&member[..member.len().min(1)]).unwrap();
    }
    set_scores(&mut store, b"a", [(5.0, b"2".to_vec()), (7.0, b"y".to_vec()), (f64::INFINITY, b"x".to_vec())]);
    let combine = |store: &mut Store, how, weight| {
        let mut operands = zset::operands(store, ZERO, [&b"ints"[..], b"a", b"none"][..2].iter().copied()).unwrap();
        operands[0].weight = weight;
        zset::store_combination(store, ZERO, b"to", how, Aggregate::Sum, &operands).unwrap();
        all(store, b"to")
    };
    let owned =
        |members: &[(f64, &[u8])]| members.iter().map(|(score, member)| (*score, member.to_vec())).collect::<Vec<_>>();
    assert_eq!(combine(&mut store, SetOperation::Intersection, 10.0), owned(&[(15.0, b"2"), (f64::INFINITY, b"x")]));
    assert_eq!(
        combine(&mut store, SetOperation::Union, f64::NEG_INFINITY),
        owned(&[(f64::NEG_INFINITY, b"1"), (f64::NEG_INFINITY, b"2"), (0.0, b"x"), (7.0, b"y")])
    );
    assert_eq!(combine(&mut store, SetOperation::Difference, 3.0), owned(&[(1.0, b"1")]));
    quire_store::string::set(&mut store, ZERO, b"text", b"x", quire_store::ExpiryChange::Clear).unwrap();
    assert!(matches!(zset::operands(&mut store, ZERO, [&b"text"[..]].into_iter()), Err(StoreError::WrongType)));
}

#[test]
fn a_union_adds_up_in_the_order_of_its_operands_however_large_it_is() {
    // The smaller operand is added first, and these sums differ by the order of adding.
    let in_order = (0.1 + 0.2) + 0.3;
    assert_ne!(in_order, 0.1 + (0.2 + 0.3));
    for (limit, members) in [(128, 30u32), (5000, 3000), (128, 3000), (0, 30)] {
        let mut store = store_of(limit);
        let keys: [&[u8]; 3] = [b"x", b"y", b"z"];
        for (number, (key, score)) in keys.into_iter().zip([0.1, 0.2, 0.3]).enumerate() {
            // Later ones have a few members more, of their own and with the same score.
            let last = members + number as u32;
            set_scores(&mut store, key, (0..last).map(|member| (score, format!("member:{member}").into_bytes())));
        }
        let operands = zset::operands(&mut store, ZERO, keys.into_iter()).unwrap();
        let stored =
            zset::store_combination(&mut store, ZERO, b"to", SetOperation::Union, Aggregate::Sum, &operands).unwrap();
        let united = all(&mut store, b"to");
        assert_eq!((stored, united.len()), (u64::from(members) + 2, members as usize + 2));
        let whole = united.iter().filter(|(score, _)| *score == in_order).count();
        assert_eq!(whole, members as usize, "limit {limit}");
        let mut shown =
            zset::collect(&store, SetOperation::Union, Aggregate::Sum, &operands, usize::MAX).unwrap().unwrap();
        assert!(zset::collect(&store, SetOperation::Union, Aggregate::Sum, &operands, 1500).unwrap().is_none());
        assert!(
            zset::collect(&store, SetOperation::Difference, Aggregate::Sum, &operands[..1], 300).unwrap().is_none()
        );
        shown.sort();
        let shown: Members = shown.iter().map(|(score, member)| (score, member.to_vec())).collect();
        assert_eq!(shown, united);
        let encoding = if members as usize + 2 <= limit { "listpack" } else { "skiplist" };
        assert_eq!(store.encoding(ZERO, b"to").unwrap(), Some(encoding));
        assert!(store.check_value(ZERO, b"to").unwrap());
    }
}

#[test]
fn members_that_packed_operands_share_are_found_by_an_index_as_by_a_walk() {
    for count in [3u32, 7, 8, 100] {
        let mut store = store_of(128);
        set_scores(&mut store, b"a", (0..count).map(|number| (1.0, format!("{number}").into_bytes())));
        set_scores(
            &mut store,
            b"b",
            (0..count).map(|number| (f64::from(number), format!("{}", number * 2).into_bytes())),
        );
        for number in (0..count).step_by(3) {
            set::open_mut(&mut store, ZERO, b"words").unwrap().add(format!("{number}").as_bytes()).unwrap();
        }
        set::open_mut(&mut store, ZERO, b"words").unwrap().add(b"no integer").unwrap();
        let combined = |store: &mut Store, how, keys: &[&[u8]]| {
            let operands = zset::operands(store, ZERO, keys.iter().copied()).unwrap();
            let members = zset::collect(store, how, Aggregate::Sum, &operands, usize::MAX).unwrap().unwrap();
            members.iter().map(|(score, member)| (member.to_vec(), score)).collect::<BTreeMap<Vec<u8>, f64>>()
        };
        let number = |one: u32| one.to_string().into_bytes();
        let shared = combined(&mut store, SetOperation::Intersection, &[&b"a"[..], b"b"]);
        let expected: BTreeMap<_, _> =
            (0..count).step_by(2).map(|one| (number(one), 1.0 + f64::from(one / 2))).collect();
        assert_eq!(shared, expected);
        let left = combined(&mut store, SetOperation::Difference, &[&b"a"[..], b"b", b"words"]);
        let expected: BTreeMap<_, _> =
            (0..count).filter(|one| one % 2 != 0 && one % 3 != 0).map(|one| (number(one), 1.0)).collect();
        assert_eq!(left, expected);
    }
}

#[test]
fn zeros_have_no_sign_whatever_the_encoding() {
    let mut digests = Vec::new();
    for limit in [128, 0] {
        let mut store = store_of(limit);
        let change = zset::open_mut(&mut store, ZERO, b"a").unwrap().set(b"m", -0.0).unwrap();
        assert_eq!(change.after.map(f64::to_bits), Some(0));
        set_scores(&mut store, b"a", [(-1.0, b"n".to_vec())]);
        zset::open_mut(&mut store, ZERO, b"a").unwrap().update(b"n", |_| Some(-0.0)).unwrap();
        let mut operands = zset::operands(&mut store, ZERO, [&b"a"[..]].into_iter()).unwrap();
        operands[0].weight = -1.0;
        let how = SetOperation::Union;
        zset::store_combination(&mut store, ZERO, b"b", how, Aggregate::Sum, &operands).unwrap();
        for key in [b"a", b"b"] {
            let bits: Vec<u64> = all(&mut store, key).iter().map(|(score, _)| score.to_bits()).collect();
            assert_eq!(bits, [0, 0], "{limit}");
        }
        digests.push(store.digest().unwrap());
    }
    assert_eq!(digests[0], digests[1]);
}
