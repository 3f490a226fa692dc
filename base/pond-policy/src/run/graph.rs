//! Whether the stages can be put in order: every need names another stage, once, and no stage waits for itself.

use crate::name::Name;
use crate::path::Path;
use crate::refusal::{Code, Refusals};

/// A stage's name and needs, each with its place.
#[derive(Debug)]
pub(super) struct Outline {
    pub(super) name: Option<(Name, Path)>,
    pub(super) needs: Vec<(Name, Path)>,
}

/// A need that names a stage: the stage's position, and where it is written.
type Edge<'a> = (usize, &'a Path);

pub(super) fn check(stages: &[&Outline], refusals: &mut Refusals) {
    refuse_same_names(stages, refusals);
    let edges: Vec<Vec<Edge<'_>>> =
        stages.iter().map(|stage| resolve_needs(stage, stages, refusals)).collect();
    refuse_cycles(stages, &edges, refusals);
}

fn refuse_same_names(stages: &[&Outline], refusals: &mut Refusals) {
    for (position, stage) in stages.iter().enumerate() {
        if let Some((name, path)) = &stage.name
            && position_of(name, stages) != Some(position)
        {
            refusals.refuse(
                Code::StageDuplicate,
                path,
                format!("{name} names an earlier stage; choose another"),
            );
        }
    }
}

fn resolve_needs<'a>(stage: &'a Outline, stages: &[&Outline], refusals: &mut Refusals) -> Vec<Edge<'a>> {
    let mut edges: Vec<Edge<'_>> = Vec::new();
    for (name, path) in &stage.needs {
        match position_of(name, stages) {
            None => refusals.refuse(Code::NeedsUnknown, path, format!("no stage is named {name}")),
            Some(position) if edges.iter().any(|(seen, _)| *seen == position) => {
                refusals.refuse(Code::NeedsDuplicate, path, format!("{name} is listed twice; keep one"));
            }
            Some(position) => edges.push((position, path)),
        }
    }
    edges
}

fn position_of(name: &Name, stages: &[&Outline]) -> Option<usize> {
    stages.iter().position(|stage| stage.name.as_ref().is_some_and(|(own, _)| own == name))
}

/// Reports each cycle once, at the need that closes it on its first stage.
fn refuse_cycles(stages: &[&Outline], edges: &[Vec<Edge<'_>>], refusals: &mut Refusals) {
    let mut waiting: Vec<usize> = (0..edges.len()).collect();
    loop {
        drop_runnable(&mut waiting, edges);
        let Some(cycle) = find_cycle(&waiting, edges) else { return };
        let names: Vec<&str> = cycle.iter().filter_map(|(position, _)| name_of(*position, stages)).collect();
        if let Some((_, path)) = cycle.first() {
            let closed = format!("{} needs {}", names.join(" needs "), names.first().unwrap_or(&""));
            refusals.refuse(
                Code::NeedsCycle,
                path,
                format!("stages wait for one another: {closed}; break the circle"),
            );
        }
        waiting.retain(|stage| !cycle.iter().any(|(position, _)| position == stage));
    }
}

/// Removes every stage that could run once those already removed have.
fn drop_runnable(waiting: &mut Vec<usize>, edges: &[Vec<Edge<'_>>]) {
    loop {
        let before = waiting.clone();
        waiting.retain(|stage| next_waiting(*stage, &before, edges).is_some());
        if waiting.len() == before.len() {
            return;
        }
    }
}

/// Each member of the first cycle with the need that leads on from it. Every waiting stage has a waiting need, so the
/// walk ends in one.
fn find_cycle<'a>(waiting: &[usize], edges: &'a [Vec<Edge<'a>>]) -> Option<Vec<Edge<'a>>> {
    let mut walk: Vec<Edge<'_>> = Vec::new();
    let mut stage = *waiting.first()?;
    loop {
        if let Some(start) = walk.iter().position(|(seen, _)| *seen == stage) {
            return Some(walk.split_off(start));
        }
        let (next, path) = next_waiting(stage, waiting, edges)?;
        walk.push((stage, path));
        stage = next;
    }
}

fn next_waiting<'a>(stage: usize, waiting: &[usize], edges: &'a [Vec<Edge<'a>>]) -> Option<Edge<'a>> {
    edges.get(stage)?.iter().copied().find(|(need, _)| waiting.contains(need))
}

fn name_of<'a>(position: usize, stages: &[&'a Outline]) -> Option<&'a str> {
    stages.get(position)?.name.as_ref().map(|(name, _)| name.as_str())
}
