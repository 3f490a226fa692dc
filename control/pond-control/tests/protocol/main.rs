//! The workers' protocol over HTTP: workers made of pond-seal's client halves, honest and not, before the real doors of a control
//! plane on SQLite and on a real Postgres. Nothing here trusts a type of the server: what is sent and received are bytes.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and starts what it tests against"
)]

mod bad_calls;
mod disorder;
mod ending;
mod hostile;
mod inheriting;
mod joining;
mod leases;
mod lies;
mod malicious;
mod quorum;
mod relayed;
mod results;
mod routes;
mod said;
mod secrets;
#[path = "../store/server.rs"]
#[expect(dead_code, reason = "the tests of the store need more of it")]
mod server;
mod steps;
mod turns;
mod whole;
mod worker;
mod world;

macro_rules! on_both {
    ($( $topic:ident: [$( $case:ident ),+ $(,)?] ),+ $(,)?) => {
        mod on_sqlite {
            $( mod $topic {
                $( #[test]
                fn $case() {
                    crate::world::on_sqlite(crate::$topic::$case);
                } )+
            } )+
        }
        mod on_postgres {
            $( #[test]
            fn $topic() {
                let server = crate::server::Server::start(crate::server::Disk::Careless);
                $( crate::world::on_postgres(&server, stringify!($case), crate::$topic::$case); )+
            } )+
        }
    };
}

on_both! {
    whole: [
        a_job_goes_all_the_way,
        a_control_plane_that_restarts_goes_on,
        what_was_sent_twice_counts_once,
    ],
    joining: [
        a_token_is_good_once_and_for_its_holder,
        keys_change_hands_with_the_old_one_s_word,
    ],
    leases: [
        a_revoked_worker_loses_everything_at_once,
        a_lease_that_is_over_is_good_for_nothing,
        a_cancelled_job_is_told,
        a_job_is_handed_in_for_another_or_for_good,
        a_job_that_is_lost_again_and_again_is_given_up,
    ],
    routes: [
        a_tenant_s_own_worker_sees_no_other_tenant,
        what_nobody_may_take_says_why_and_ends,
        a_stage_that_is_not_allowed_any_more_is_not_dispatched,
        a_drained_worker_is_told,
    ],
    inheriting: [
        a_stage_works_on_what_those_before_it_made,
        stages_that_changed_nothing_hand_on_what_they_were_given,
        what_cannot_be_put_together_ends_the_stage,
    ],
    results: [
        a_result_that_is_not_what_was_asked_is_rejected,
        output_out_of_place_is_told,
    ],
    ending: [
        a_small_result_comes_with_the_end_of_its_job,
        what_comes_with_the_end_is_judged_like_the_rest,
    ],
    turns: [
        a_result_brings_the_next_job,
        the_next_job_is_for_the_call_that_brought_the_result,
        who_asks_with_a_result_gets_no_more_than_who_polls,
        a_job_nobody_began_has_nothing_but_its_end,
        one_result_sent_twice_at_once_counts_once,
        a_result_waits_for_no_tree,
    ],
    quorum: [
        one_who_lies_is_outvoted_and_the_paths_are_named,
        what_is_compared_is_what_was_asked,
        an_operator_has_results_confirmed_at_random,
    ],
    malicious: [
        no_lie_is_accepted_and_each_has_its_code,
        a_result_is_nobody_else_s_and_not_for_later,
        output_without_end_is_cut,
    ],
    lies: [
        an_image_is_the_one_that_was_asked_for,
        a_statement_counts_for_its_own_run_alone,
        who_lied_once_is_not_heard_again,
        a_tree_that_is_not_as_long_as_it_says_is_none,
        no_contradiction_is_a_success,
        no_clock_of_a_worker_is_believed,
        what_was_spent_is_not_taken_back,
        a_path_is_told_once,
        output_after_its_end_is_refused,
    ],
    secrets: [
        secrets_are_released_to_the_holder_only,
        without_a_pinned_key_nothing_is_released,
    ],
    bad_calls: [
        a_request_passes_once_as_it_was_signed,
        bodies_are_capped_and_shaped,
    ],
    hostile: [
        each_kind_of_call_replayed_has_no_second_effect,
        a_poll_replayed_to_a_new_process_costs_time,
        a_job_handed_to_another_worker_is_nobody_s,
        a_result_forged_or_moved_is_no_result,
        tags_and_capabilities_are_not_what_is_said_on_the_way,
        the_feed_tells_no_secret,
        forged_lines_of_the_feed_bring_nothing,
    ],
    relayed: [
        a_poll_that_waits_is_answered_when_a_job_comes,
        a_poll_of_a_stranger_is_the_control_plane_s,
    ],
}
