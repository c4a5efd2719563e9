//! One suite for every mechanism: the same semantics, whatever lies below.
//!
//! Relies on nothing but the traits `Origin` and `View`. A mechanism that can't be had here is named and skipped for that
//! reason alone; `cargo test --test suite scoot` runs the tests of one.

#[path = "../common/mod.rs"]
#[allow(dead_code, reason = "the stress run uses other parts of it")]
mod common;
mod edges;
mod history;
mod large;
mod order;
mod writers;

use quire_snapshot::{Mechanism, MechanismError, OriginOptions, attach};

macro_rules! suite_of {
    ($name:ident, $mechanism:ident, $([$($module:ident::$behaviour:ident),* $(,)?])*) => {
        mod $name {
            $($(
                #[test]
                fn $behaviour() {
                    crate::$module::$behaviour(quire_snapshot::Mechanism::$mechanism);
                }
            )*)*
        }
    };
}

macro_rules! suite {
    ($behaviours:tt, $sparse:tt) => {
        suite_of!(scoot, Scoot, $behaviours $sparse);
        suite_of!(uffd, Uffd, $behaviours $sparse);
        suite_of!(barrier, Barrier, $behaviours $sparse);
        suite_of!(mmapcopy, MmapCopy, $behaviours $sparse);
        suite_of!(fork, Fork, $behaviours $sparse);
        // An eager copy has no holes: it would take as much memory as the range is long.
        suite_of!(memcpy, Memcpy, $behaviours);
    };
}

suite!(
    [
        history::any_history_reads_as_at_the_cuts,
        order::any_order_of_dropping_leaves_the_rest_right,
        order::a_cut_of_a_view_outlives_the_view_and_its_later_writes,
        order::an_old_view_stays_right_through_hundreds_of_cuts,
        order::the_range_is_free_for_others_when_the_last_view_is_gone,
        order::what_the_mechanism_before_has_left_is_kept_and_shown,
        writers::views_show_the_cut_while_several_threads_write_the_same_pages,
        writers::views_show_the_cut_under_every_option,
        writers::several_threads_read_and_cut_one_view,
        edges::reads_outside_a_view_and_announcements_outside_the_range_are_refused,
        edges::a_system_call_may_write_where_it_was_announced,
        edges::a_view_outlives_the_thread_that_cut_it,
        edges::holes_read_as_zero_before_and_after_they_are_written,
        edges::the_range_may_be_unmapped_as_soon_as_all_is_gone,
        edges::a_view_may_be_read_into_the_range_it_shows,
        edges::figures_add_up,
    ],
    [large::a_range_beyond_four_gib_is_cut_and_read]
);

#[test]
fn mechanisms_are_refused_only_with_a_reason_and_a_suggestion() {
    for mechanism in Mechanism::ALL {
        let memory = common::memory::Memory::new(common::memory::Kind::Huge, 1);
        match attach(mechanism, memory.span(), &OriginOptions::default()) {
            Ok(origin) => assert_eq!(origin.mechanism(), mechanism),
            Err(MechanismError::Unsupported { reason, suggestion, .. }) => {
                assert!(!reason.is_empty() && !suggestion.is_empty(), "{mechanism}: {reason:?}, {suggestion:?}");
                quire_sys::testing::skipped(format!("{mechanism}: {reason}"));
            }
            Err(error) => panic!("{mechanism}: {error}"),
        }
        let unsound = OriginOptions { region_bytes: 12345, ..OriginOptions::default() };
        let refusal = attach(mechanism, memory.span(), &unsound).err().map(|refusal| refusal.to_string());
        assert!(
            refusal.as_ref().is_some_and(|words| words.contains("take a power of two")),
            "{mechanism}: {refusal:?}"
        );
    }
}
