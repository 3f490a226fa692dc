//! The user's API as its clients meet it: real connections, a real store, on SQLite and on a Postgres of the tests' own.
#![forbid(unsafe_code)]
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "a test stops at the first surprise, and starts what it tests against"
)]

mod access;
mod bad_input;
mod client;
mod document;
mod keeper;
mod runs;
mod sandboxes;
mod secrets;
#[expect(dead_code, reason = "the store's tests use more of it")]
#[path = "../store/server.rs"]
mod server;
mod slow;
mod sources;
mod watching;
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
            #[test]
            fn everything() {
                let server = crate::server::Server::start(crate::server::Disk::Careless);
                $( $( crate::world::on_postgres(&server, stringify!($case), crate::$topic::$case); )+ )+
            }
        }
    };
}

on_both! {
    access: [
        every_route_asks_who_is_there,
        nobody_hands_out_more_than_he_has,
        a_project_s_token_sees_its_project_only,
        refused_calls_are_written_down_at_a_bounded_rate,
    ],
    bad_input: [
        everything_that_fails_is_a_problem,
        oversized_and_mistyped_bodies_are_refused,
        a_list_of_fields_is_no_body,
        a_grant_that_would_mean_nothing_names_its_field,
    ],
    document: [the_document_is_served_as_it_is_committed],
    runs: [
        a_run_is_judged_submitted_shown_and_cancelled,
        the_same_key_is_the_same_run,
        an_operator_s_demand_holds_at_preflight_and_submission,
        pages_go_by_cursor,
    ],
    sandboxes: [
        a_sandbox_is_made_used_and_deleted,
        a_key_is_one_sandbox_and_an_id_is_given_once,
        sandboxes_are_their_project_s,
        bad_documents_and_programs_are_refused_with_every_fault,
        a_project_has_so_many_and_no_more,
        without_a_keeper_it_is_said,
    ],
    secrets: [
        a_value_goes_in_and_never_comes_out,
        the_vault_gets_a_new_key,
        a_new_key_of_another_control_plane_is_taken_over,
        what_another_vault_sealed_is_named,
        a_control_plane_without_the_vault_of_its_store_is_not_ready,
        a_control_plane_with_another_signing_key_is_not_ready,
    ],
    sources: [
        a_source_is_kept_as_ciphertext,
        the_same_source_sent_again_is_the_same_run,
        what_is_no_tree_leaves_nothing,
    ],
    watching: [
        events_go_on_where_they_stopped,
        output_is_read_by_bytes_and_followed,
        output_is_there_without_a_result,
    ],
}
