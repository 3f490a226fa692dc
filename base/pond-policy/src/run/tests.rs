//! Whole documents: what is accepted, and every fault with its place.

use super::*;
use crate::limits::ByteBudget;
use crate::testing::{faults, number};

fn preflighted(document: &Node) -> Result<Run, Refusals> {
    preflight(document, &Settings::default())
}

fn refused(document: &Node) -> Vec<String> {
    faults(&preflighted(document).unwrap_err())
}

/// A document of one stage with this executor.
fn with_executor(executor: Node) -> Node {
    Node::Map(vec![
        ("project".into(), node!("acme")),
        (
            "stages".into(),
            Node::List(vec![Node::Map(vec![("name".into(), node!("only")), ("executor".into(), executor)])]),
        ),
    ])
}

/// A document of stages given as name and needs.
fn with_needs(stages: &[(&str, &[&str])]) -> Node {
    let stage = |(name, needs): &(&str, &[&str])| {
        Node::Map(vec![
            ("name".into(), node!(*name)),
            ("needs".into(), Node::List(needs.iter().map(|need| node!(*need)).collect())),
            (
                "executor".into(),
                node!({"kind": "swarm", "command": ["true"], "sandbox": {"profile": "review"}}),
            ),
        ])
    };
    let stages = Node::List(stages.iter().map(stage).collect());
    Node::Map(vec![("project".into(), node!("acme")), ("stages".into(), stages)])
}

#[test]
fn a_full_document_is_read() {
    let document = node!({
        "project": "acme",
        "budgets": {"wall_clock": "2h", "max_cost_cents": 500, "max_output_bytes": "64m"},
        "stages": [
            {"name": "edit", "executor": {
                "kind": "swarm", "agent": "claude-code", "model": "some-model-1",
                "harness_files": {".config/agent.json": "{\"model\": \"{{MODEL}}\"}"},
                "env": {"CI": "1"}, "artifacts": ["edit_result.json"], "timeout": "30m",
                "sandbox": {"profile": "harness", "tier": "byo", "allow_hosts": ["git.acme.com"]}}},
            {"name": "test", "needs": ["edit"], "verify": {"quorum": 2, "compare": "exit"}, "executor": {
                "kind": "swarm", "command": ["pytest", "-q"], "sandbox": {"profile": "sealed"}}},
            {"name": "local", "executor": {
                "kind": "swarm", "command": ["make"], "sandbox": {"profile": "none"}}}
        ]
    });
    let run = preflighted(&document).unwrap();
    assert_eq!(run.project.as_str(), "acme");
    let budgets = Allowance {
        wall_clock: Timeout::parse("2h").unwrap(),
        max_cost_cents: CostCents::parse("500").unwrap(),
        max_output_bytes: ByteBudget::parse("64m").unwrap(),
        ..Allowance::default()
    };
    assert_eq!(run.budgets, budgets);
    let [edit, test, local] = &run.stages[..] else { panic!("three stages") };
    assert_eq!(edit.executor.program, Program::Agent(Agent::ClaudeCode));
    assert_eq!(edit.executor.harness_files[0].0, ".config/agent.json");
    assert_eq!(edit.executor.env, [("CI".to_owned(), "1".to_owned())]);
    assert_eq!(edit.executor.artifacts, ["edit_result.json"]);
    assert_eq!(edit.executor.timeout.to_string(), "30m");
    let tags: Vec<String> = edit.executor.dispatch.required_tags.iter().map(ToString::to_string).collect();
    assert_eq!(tags, ["pool:byo", "tenant:acme"]);
    assert_eq!(test.needs, [Name::parse("edit").unwrap()]);
    assert_eq!(test.verify.map(|verify| (verify.quorum.get(), verify.compare)), Some((2, Compare::Exit)));
    assert_eq!((test.executor.timeout.to_string().as_str(), local.executor.model.as_ref()), ("1m", None));
    let warned: Vec<String> =
        run.warnings().map(|warning| format!("{} {}", warning.code.name(), warning.path)).collect();
    assert_eq!(warned, ["unconfined_sandbox stages[2].executor.sandbox.profile"]);
}

#[test]
fn every_fault_has_its_place() {
    let document = node!({
        "projet": "acme",
        "stages": [
            {"name": "a", "executor": {"kind": "swarm", "command": ["true"]}},
            {"name": "b c", "needs": ["a", "zed", "a"], "executor": {
                "kind": "local", "sandbox": {"profile": "harness", "overrides": {"memory": "4gb"}}}},
            {"name": "a", "executor": {
                "kind": "swarm", "command": [], "agent": "x",
                "env": {"1X": "a", "OK": (number("1"))}, "artifacts": ["../up", "/etc"],
                "sandbox": {"tier": "byo"}}},
            7
        ]
    });
    assert_eq!(
        refused(&document),
        [
            "missing_field project",
            "unknown_field projet",
            "missing_sandbox stages[0].executor.sandbox",
            "name_invalid stages[1].name",
            "needs_unknown stages[1].needs[1]",
            "needs_duplicate stages[1].needs[2]",
            "command_missing stages[1].executor.command",
            "unknown_kind stages[1].executor.kind",
            "override_invalid stages[1].executor.sandbox.overrides.memory",
            "stage_duplicate stages[2].name",
            "command_conflict stages[2].executor.command",
            "too_few stages[2].executor.command",
            "unknown_agent stages[2].executor.agent",
            "env_invalid stages[2].executor.env.1X",
            "wrong_type stages[2].executor.env.OK",
            "path_invalid stages[2].executor.artifacts[0]",
            "path_invalid stages[2].executor.artifacts[1]",
            "missing_profile stages[2].executor.sandbox.profile",
            "wrong_type stages[3]",
        ]
    );
}

#[test]
fn needs_may_not_form_a_circle() {
    assert_eq!(
        preflighted(&with_needs(&[("a", &["b"]), ("b", &["c"]), ("c", &[])])).map(|run| run.stages.len()),
        Ok(3)
    );
    assert_eq!(refused(&with_needs(&[("a", &["a"])])), ["needs_cycle stages[0].needs[0]"]);
    let two_circles = with_needs(&[
        ("start", &[]),
        ("a", &["start", "b"]),
        ("b", &["c"]),
        ("c", &["a"]),
        ("x", &["y"]),
        ("y", &["x"]),
        ("after", &["a", "x"]),
    ]);
    let list = preflighted(&two_circles).unwrap_err().into_list();
    let places: Vec<String> =
        list.iter().map(|refusal| format!("{} {}", refusal.code, refusal.path)).collect();
    assert_eq!(places, ["needs_cycle stages[1].needs[1]", "needs_cycle stages[4].needs[0]"]);
    assert_eq!(list[0].message, "stages wait for one another: a needs b needs c needs a; break the circle");
}

#[test]
fn a_sealed_stage_runs_listed_commands_for_a_minute() {
    let sealed = |command: Node, timeout: Node| {
        with_executor(Node::Map(vec![
            ("kind".into(), node!("swarm")),
            ("command".into(), command),
            ("timeout".into(), timeout),
            ("sandbox".into(), node!({"profile": "untrusted-code-test"})),
        ]))
    };
    assert_eq!(preflighted(&sealed(node!(["pytest"]), node!("60s"))).map(|run| run.stages.len()), Ok(1));
    for command in [
        node!(["sh", "-c", "pytest"]),
        node!(["/bin/rm"]),
        node!(["env", "A=b", "curl"]),
        node!(["./python"]),
    ] {
        assert_eq!(refused(&sealed(command, node!(60))), ["command_not_allowed stages[0].executor.command"]);
    }
    assert_eq!(
        refused(&sealed(node!(["pytest"]), node!("61s"))),
        ["timeout_invalid stages[0].executor.timeout"]
    );
    let agent = node!({"kind": "swarm", "agent": "codex", "model": "m", "sandbox": {"profile": "sealed"}});
    assert_eq!(
        refused(&with_executor(agent)),
        ["command_not_allowed stages[0].executor.agent", "rule_without_effect stages[0].executor.model"]
    );
}

#[test]
fn an_image_on_disk_does_not_travel() {
    let executor = node!({"kind": "swarm", "command": ["true"], "sandbox": {
        "profile": "harness", "overrides": {"image": "/etc"}}});
    assert_eq!(
        refused(&with_executor(executor)),
        ["image_not_portable stages[0].executor.sandbox.overrides.image"]
    );
}

#[test]
fn the_operator_s_word_counts_at_preflight() {
    let executor = node!({"kind": "swarm", "command": ["true"], "sandbox": {"profile": "none"}});
    let required = Settings { require_sandbox: true, ..Settings::default() };
    let refusals = preflight(&with_executor(executor), &required).unwrap_err();
    assert_eq!(faults(&refusals), ["unconfined_refused stages[0].executor.sandbox.profile"]);
}

#[test]
fn paths_stay_inside() {
    for path in ["", "/a", "a//b", "a/", "./a", "a/./b", "..", "a/../b", "a\nb", "a\0b"] {
        let executor = Node::Map(vec![
            ("kind".into(), node!("swarm")),
            ("command".into(), node!(["true"])),
            ("artifacts".into(), Node::List(vec![node!(path)])),
            ("sandbox".into(), node!({"profile": "review"})),
        ]);
        assert_eq!(
            refused(&with_executor(executor)),
            ["path_invalid stages[0].executor.artifacts[0]"],
            "{path:?}"
        );
    }
}

#[test]
fn what_a_harness_file_names_is_judged_before_anything_runs() {
    let with_file = |text: &str| {
        let files = Node::Map(vec![(".npmrc".into(), node!(text))]);
        with_executor(Node::Map(vec![
            ("kind".into(), node!("swarm")),
            ("command".into(), node!(["true"])),
            ("harness_files".into(), files),
            ("sandbox".into(), node!({"profile": "review"})),
        ]))
    };
    for good in
        ["{{SECRET:npm.token-1}} {{MODEL}} {{BROKER_URL}}", "{{ theirs }} {{theirs}} ${{ secrets.A }}", "{{"]
    {
        assert_eq!(preflighted(&with_file(good)).map(|run| run.stages.len()), Ok(1), "{good}");
    }
    for bad in ["{{SECRET:npm token}}", "{{SECRET:}}", "{{SECRET:NPM", "{{MODLE}}", "{{TOKEN:NPM}}"] {
        let fault = "harness_invalid stages[0].executor.harness_files[\".npmrc\"]";
        assert_eq!(refused(&with_file(bad)), [fault], "{bad}");
    }
}

#[test]
fn what_no_worker_could_start_is_a_fault() {
    let nobody = node!({"kind": "swarm", "agent": "claude", "sandbox": {"profile": "harness"}});
    let refusals = preflighted(&with_executor(nobody)).unwrap_err();
    assert_eq!(faults(&refusals), ["unknown_agent stages[0].executor.agent"]);
    assert_eq!(refusals.into_list().remove(0).allowed, Agent::NAMES);
    let unnamed = node!({"kind": "swarm", "command": ["", "a"], "sandbox": {"profile": "harness"}});
    assert_eq!(refused(&with_executor(unnamed)), ["command_invalid stages[0].executor.command[0]"]);
    let inside = node!({"kind": "swarm", "command": ["true", ""], "sandbox": {"profile": "harness"},
        "harness_files": {"a/b/c": "", "a-b": "", "a": "", "ab": ""}});
    assert_eq!(refused(&with_executor(inside)), ["path_invalid stages[0].executor.harness_files[\"a/b/c\"]"]);
}

#[test]
fn budgets_are_bounded() {
    let budgets =
        node!({"wall_clock": "8d", "max_cost_cents": (number("-1")), "max_egress_bytes": 0, "money": 1});
    let Node::Map(mut entries) = with_needs(&[("a", &[])]) else { panic!("an object") };
    entries.push(("budgets".into(), budgets));
    assert_eq!(
        refused(&Node::Map(entries)),
        [
            "budget_invalid budgets.wall_clock",
            "budget_invalid budgets.max_cost_cents",
            "budget_invalid budgets.max_egress_bytes",
            "unknown_field budgets.money",
        ]
    );
}

#[test]
fn a_document_asks_for_less_than_the_operator_gives_and_never_for_more() {
    let file = Budgets { max_cost_cents: CostCents::parse("300").ok(), ..Budgets::default() };
    let set = |name: &str| match name {
        "POND_RUN_WALL_CLOCK" => Some("1h".to_owned()),
        "POND_RUN_MAX_COST_CENTS" => Some("400".to_owned()),
        _ => None,
    };
    let run = Allowance::of_operator(Budgets::parse(set).unwrap(), file);
    let own = Allowance::default();
    let (hour, cents) = (Timeout::parse("1h").unwrap(), CostCents::parse("300").unwrap());
    assert_eq!(run, Allowance { wall_clock: hour, max_cost_cents: cents, ..own });
    let settings = Settings { run, ..Settings::default() };
    let with = |budgets: Node| {
        let Node::Map(mut entries) = with_needs(&[("a", &[])]) else { panic!("an object") };
        entries.push(("budgets".into(), budgets));
        preflight(&Node::Map(entries), &settings)
    };
    let less = with(node!({"wall_clock": "59m", "max_cost_cents": 300})).unwrap();
    assert_eq!(less.budgets, Allowance { wall_clock: Timeout::parse("59m").unwrap(), ..run });
    let more = with(node!({"wall_clock": "61m", "max_cost_cents": 301, "max_output_bytes": "2g"}));
    let more = more.unwrap_err();
    assert_eq!(
        faults(&more),
        [
            "budget_above_limit budgets.wall_clock",
            "budget_above_limit budgets.max_cost_cents",
            "budget_above_limit budgets.max_output_bytes",
        ]
    );
    let first = more.into_list().remove(0).message;
    assert_eq!(first, "asks for 61m, and this deployment gives a run 1h");
}

#[test]
fn a_budget_that_is_not_understood_is_refused_and_all_at_once() {
    let odd = |name: &str| match name {
        "POND_RUN_WALL_CLOCK" => Some("forever".to_owned()),
        "POND_RUN_MAX_COST_CENTS" => Some("-1".to_owned()),
        "POND_RUN_MAX_OUTPUT_BYTES" | "POND_RUN_MAX_ARTIFACT_BYTES" => Some("0".to_owned()),
        "POND_RUN_MAX_EGRESS_BYTES" => Some(String::new()),
        _ => None,
    };
    let refusals = Budgets::parse(odd).unwrap_err();
    assert_eq!(refusals.codes(), [Code::SettingInvalid; 5]);
    let mut variables: Vec<&str> = Budget::ALL.iter().map(|budget| budget.variable()).collect();
    variables.sort_unstable();
    let places: Vec<String> = refusals.into_list().iter().map(|refusal| refusal.path.to_string()).collect();
    assert_eq!(places, variables);
}
