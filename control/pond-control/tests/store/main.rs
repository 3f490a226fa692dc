//! One suite, two engines: every case runs on SQLite in a directory of its own, and on a real Postgres that the tests start
//! from Debian's package, each case in a database of its own. Processes are killed in the middle, and what was acknowledged
//! must be there.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and starts what it tests against"
)]

mod audited;
mod budgets;
mod bundles;
mod completing;
mod crash;
mod egress;
mod encrypted;
mod enrolling;
mod journal;
mod leasing;
mod logs;
mod migrating;
mod money;
mod projects;
mod rerunning;
mod routing;
mod secrets;
mod server;
mod stages;
mod submitting;
mod together;
mod tokens;
mod world;

macro_rules! conformance {
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

conformance! {
    submitting: [
        a_run_is_stored_and_shown,
        the_same_key_is_the_same_run,
        one_key_sent_at_once_makes_one_run,
        an_unknown_project_has_no_runs,
        pages_do_not_shift,
        a_run_works_on_a_source_of_its_own_project,
    ],
    stages: [
        a_stage_starts_when_its_needs_succeeded,
        what_needs_a_failed_stage_is_cancelled,
        what_needs_a_refused_stage_is_refused,
        a_cancelled_run_ends_and_its_jobs_are_told,
        a_cancelled_run_that_nobody_works_on_ends_at_once,
    ],
    leasing: [
        jobs_go_out_in_order_each_under_its_epoch,
        claimers_at_once_never_get_the_same_job,
        an_offer_is_taken_up_in_time_or_lost,
        a_heartbeat_renews_but_not_past_the_deadline,
        a_lease_that_lapsed_is_good_for_nothing,
        a_job_that_costs_three_workers_is_given_up,
        a_worker_that_loses_many_jobs_gets_no_more,
        a_job_given_back_counts_for_nobody,
        what_lapsed_while_nobody_listened_is_nobody_s_fault,
        a_clock_that_goes_back_keeps_no_job,
        a_job_its_worker_does_not_run_is_over,
    ],
    completing: [
        a_result_is_accepted_once,
        a_result_sent_twice_at_once_is_accepted_once,
        a_result_of_an_old_lease_is_stale,
        a_result_under_an_offer_that_lapsed_is_stale,
        a_failed_stage_is_tried_again,
        a_result_that_does_not_verify_fails_the_stage,
        a_result_of_a_cancelled_job_is_kept,
    ],
    routing: [
        a_worker_gets_what_it_may_have,
        work_that_nobody_may_take_says_so_and_ends,
        a_drained_worker_gets_nothing,
        who_was_not_seen_for_a_while_is_not_there,
        who_has_a_long_job_is_there,
        in_vain_is_counted_from_when_nobody_was_there,
        a_control_plane_that_was_away_gives_everybody_time,
    ],
    logs: [
        pieces_come_in_order_and_are_chained,
        a_piece_sent_again_is_the_same_or_refused,
        caps_hold,
        the_log_of_a_lost_lease_does_not_mix_in,
    ],
    budgets: [
        output_over_its_budget_ends_the_run_and_is_kept,
        a_result_over_its_budget_is_not_kept,
        egress_is_counted_over_all_stages,
        the_wall_clock_ends_a_run_that_waits_or_works,
        a_run_has_what_its_document_asked_for,
    ],
    egress: [parallel_stages_never_carry_more_than_there_is, bytes_are_lent_as_they_are_used],
    money: [
        parallel_stages_never_spend_more_than_there_is,
        who_reports_less_costs_at_most_its_slice,
        a_lease_that_lapsed_is_paid_for_in_full,
        a_call_that_cannot_be_paid_ends_the_run,
    ],
    bundles: [a_token_is_for_one_lease, a_token_expires],
    enrolling: [a_token_makes_one_worker, grants_are_the_control_planes, a_revoked_worker_has_nothing],
    secrets: [
        a_value_goes_in_and_comes_out_for_its_project_only,
        a_record_that_was_moved_does_not_open,
        rotation_reaches_every_record,
    ],
    tokens: [a_token_is_good_until_it_is_not],
    journal: [
        every_move_is_written_down_once_and_told,
        nothing_secret_is_written_down,
        readers_go_on_where_they_stopped,
        a_refused_call_is_written_down_for_its_project,
    ],
    audited: [
        the_log_grows_and_proves_what_it_holds,
        an_accepted_result_has_evidence,
        several_who_grow_it_make_one_tree,
        whatever_is_changed_in_the_log_shows,
        nothing_is_signed_on_top_of_a_tree_that_was_changed,
        a_log_that_was_cut_and_went_on_is_not_the_one_that_was_signed,
    ],
    rerunning: [
        a_result_counts_when_another_worker_agrees,
        a_worker_that_is_outvoted_gets_no_more,
        where_nobody_agrees_nobody_is_believed_or_blamed,
        the_trusted_pool_is_asked_first,
        who_waits_for_another_worker_is_told_and_not_for_ever,
        a_lost_or_cancelled_second_run_changes_no_rule,
    ],
    projects: [a_project_goes_with_what_is_its_own_unless_it_has_runs, counts_are_by_state],
    migrating: [
        a_store_opens_again,
        a_newer_or_edited_store_is_left_alone,
        a_store_with_events_beside_its_audit_log_is_brought_along,
    ],
    together: [
        two_control_planes_share_the_work,
        who_waits_for_a_row_waits_alone,
        workers_looked_up_at_once_are_each_themselves,
    ],
}
