//! Projects, and the hosts an operator allows each of them.

use pond_policy::name::{Name, Project};
use serde_json::json;

use super::Store;
use super::engine::{Fault, args};
use super::id::Moment;
use super::journal::{self, Action, Actor, Change};

#[derive(Debug, thiserror::Error)]
pub enum ProjectFault {
    #[error(transparent)]
    Store(#[from] Fault),
    #[error("there is no project {0}")]
    Unknown(Project),
}

impl Store {
    /// Whether it is new.
    pub async fn create_project(&self, project: &Project, actor: &Actor, now: Moment) -> Result<bool, Fault> {
        let mut tx = self.engine.write().await?;
        let sql = "INSERT INTO project (name, created_at) VALUES ($1, $2) ON CONFLICT DO NOTHING";
        let new = tx.run(sql, args![project.as_str(), now]).await? == 1;
        if new {
            journal::write(&mut tx, now, &about(project, actor, Action::ProjectCreated, json!({}))).await?;
        }
        tx.commit().await?;
        Ok(new)
    }

    pub async fn projects(&self) -> Result<Vec<Project>, Fault> {
        let mut tx = self.engine.read().await?;
        let rows = tx.rows("SELECT name FROM project ORDER BY name", &[]).await?;
        rows.iter().map(|row| row.read("name", |text| Name::parse(text).map(Project::from))).collect()
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
            journal::write(&mut tx, now, &change).await?;
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
            journal::write(&mut tx, now, &change).await?;
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
