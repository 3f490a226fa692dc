//! Projects, and the hosts an operator allows each of them.

use pond_policy::name::{Name, Project};
use serde_json::json;

use super::Store;
use super::engine::{Fault, Row, args};
use super::id::Moment;
use super::journal::{self, Action, Actor, Change};

#[derive(Debug, thiserror::Error)]
pub enum ProjectFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("there is no project {0}")]
    Unknown(Project),
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProjectView {
    pub name: Project,
    pub created_at: Moment,
}

/// What became of a project that should go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Removed {
    Gone,
    Unknown,
    HasRuns,
}

impl ProjectView {
    fn read(row: &Row) -> Result<Self, Fault> {
        let name = row.read("name", |text| Name::parse(text).map(Project::from))?;
        Ok(Self { name, created_at: Moment(row.int("created_at")?) })
    }
}

impl Store {
    /// Whether it is new.
    pub async fn create_project(&self, project: &Project, actor: &Actor, now: Moment) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let sql = "INSERT INTO project (name, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let new = tx.run(sql, args![project.as_str(), now]).await? == 1;
        if new {
            journal::write(&mut tx, now, &about(project, actor, Action::ProjectCreated, json!({})));
        }
        tx.commit().await?;
        Ok(new)
    }

    pub async fn projects(&self) -> Result<Vec<ProjectView>, Fault> {
        let mut tx = self.engine.read().await?;
        let rows = tx.rows("SELECT name, created_at FROM project ORDER BY name", &[]).await?;
        rows.iter().map(ProjectView::read).collect()
    }

    pub async fn project(&self, project: &Project) -> Result<Option<ProjectView>, Fault> {
        let mut tx = self.engine.read().await?;
        let sql = "SELECT name, created_at FROM project WHERE name = $1";
        tx.row(sql, args![project.as_str()]).await?.as_ref().map(ProjectView::read).transpose()
    }

    /// Removes a project with its rules and credentials. One that ever had a run stays: its history is nobody's to remove.
    pub async fn remove_project(
        &self,
        project: &Project,
        actor: &Actor,
        now: Moment,
    ) -> Result<Removed, Fault> {
        let mut tx = self.engine.write().await?;
        let name = project.as_str();
        if tx.row("SELECT id FROM run WHERE project = $1 LIMIT 1", args![name]).await?.is_some() {
            return Ok(Removed::HasRuns);
        }
        tx.run("DELETE FROM egress_rule WHERE project = $1", args![name]).await?;
        tx.run("DELETE FROM credential WHERE project = $1", args![name]).await?;
        if tx.run("DELETE FROM project WHERE name = $1", args![name]).await? == 0 {
            return Ok(Removed::Unknown);
        }
        journal::write(&mut tx, now, &about(project, actor, Action::ProjectRemoved, json!({})));
        tx.commit().await?;
        Ok(Removed::Gone)
    }

    /// Whether the rule is new. What it says is the caller's business; the store keeps its text.
    pub async fn allow_egress(
        &self,
        project: &Project,
        rule: &str,
        actor: &Actor,
        now: Moment,
    ) -> Result<bool, ProjectFault> {
        let mut tx = self.engine.write().await?;
        let known = tx.row("SELECT name FROM project WHERE name = $1", args![project.as_str()]).await?;
        if known.is_none() {
            return Err(ProjectFault::Unknown(project.clone()));
        }
        let sql =
            "INSERT INTO egress_rule (project, rule, created_at) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING";
        let new = tx.run(sql, args![project.as_str(), rule, now]).await? == 1;
        if new {
            let change = about(project, actor, Action::EgressAllowed, json!({"rule": rule}));
            journal::write(&mut tx, now, &change);
        }
        tx.commit().await?;
        Ok(new)
    }

    /// Whether there was such a rule.
    pub async fn remove_egress(
        &self,
        project: &Project,
        rule: &str,
        actor: &Actor,
        now: Moment,
    ) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let sql = "DELETE FROM egress_rule WHERE project = $1 AND rule = $2";
        let removed = tx.run(sql, args![project.as_str(), rule]).await? == 1;
        if removed {
            let change = about(project, actor, Action::EgressRemoved, json!({"rule": rule}));
            journal::write(&mut tx, now, &change);
        }
        tx.commit().await?;
        Ok(removed)
    }

    pub async fn egress_rules(&self, project: &Project) -> Result<Vec<String>, Fault> {
        let mut tx = self.engine.read().await?;
        let sql = "SELECT rule FROM egress_rule WHERE project = $1 ORDER BY rule";
        let rows = tx.rows(sql, args![project.as_str()]).await?;
        rows.iter().map(|row| row.text("rule")).collect()
    }
}

fn about<'a>(
    project: &'a Project,
    actor: &'a Actor,
    action: Action,
    detail: serde_json::Value,
) -> Change<'a> {
    let name = project.as_str();
    Change { actor, action, project: Some(name), run: None, stage: None, subject: name, detail }
}
