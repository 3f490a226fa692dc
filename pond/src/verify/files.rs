//! The files a statement names, compared with what lies beside it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use pond_seal::result::{Egress, FileDigest, Output, Stream};
use pond_seal::statement::Statement;
use pond_worker::collect::{Record, digest_before, empty_manifest, not_stored};
use pond_worker::path::RelPath;

use super::check::{Checks, Failure};
use crate::proof::{CHANGES, EGRESS, MANIFEST, PATCH, POLICY, command_digest, digest_of};
use crate::runs::RunInfo;

/// So many paths are named; a person looks at the rest.
const NAMED: usize = 8;
pub(super) const MISSING: &str = "file_missing";
const UNREADABLE: &str = "file_unreadable";

/// A verified statement, and the directory its files lie in.
pub(super) struct Beside<'a> {
    pub(super) directory: &'a Path,
    pub(super) statement: &'a Statement,
}

impl Beside<'_> {
    pub(super) fn check(&self, run: Option<&RunInfo>, checks: &mut Checks) {
        let result = &self.statement.result;
        if let Some(info) = run {
            checks.step("statement is about this run", self.about(info));
            checks.step("command is the one stated", self.command(info));
        }
        let subject = self.subject();
        let is_subject = subject.is_ok();
        checks.step("manifest.json is the subject", subject);
        if let Output::Collected { changes, patch, .. } = &result.output {
            checks.step("changes.json", self.same(CHANGES, *changes, "changes_mismatch"));
            checks.step("changes.json agrees with the statement", self.changes().map(drop));
            checks.step("changes.patch", self.same(PATCH, *patch, "patch_mismatch"));
            if is_subject {
                checks.step("artifacts and edit_result.json", super::copies::check(self));
            }
            // Only a run's own directory keeps the new contents by themselves.
            if run.is_some() {
                checks.step("kept contents", self.contents());
            }
        }
        for log in result.logs.iter().filter(|log| self.is_beside(log.stream)) {
            let stated = FileDigest { sha256: log.sha256, bytes: log.bytes };
            checks.step(log.stream.file(), self.same(log.stream.file(), stated, "log_mismatch"));
        }
        let policy = FileDigest { sha256: result.policy.sha256, bytes: result.policy.bytes };
        checks.step("policy.json", self.same(POLICY, policy, "policy_mismatch"));
        if let Egress::Gateway { record, .. } = &result.egress {
            checks.step("egress.jsonl", self.same(EGRESS, *record, "egress_mismatch"));
        }
    }

    /// A result that was unpacked is judged by its files; the stream it came in need not be kept.
    fn is_beside(&self, stream: Stream) -> bool {
        match stream {
            Stream::Stdout | Stream::Stderr | Stream::Terminal => true,
            Stream::Result => self.directory.join(stream.file()).symlink_metadata().is_ok(),
        }
    }

    fn about(&self, info: &RunInfo) -> Result<(), Failure> {
        let (said, wanted) = (&self.statement.result.job.id, info.run.as_str());
        if said == wanted { Ok(()) } else { Err(Failure::new("run_mismatch", format!("it is about {said}"))) }
    }

    fn command(&self, info: &RunInfo) -> Result<(), Failure> {
        match command_digest(&info.command) {
            Ok(digest) if digest == self.statement.result.command_sha256 => Ok(()),
            Ok(_) | Err(_) => Err(Failure::new("command_mismatch", "run.json names another command")),
        }
    }

    fn subject(&self) -> Result<(), Failure> {
        let there = match &self.statement.result.output {
            Output::Collected { .. } => self.digest(MANIFEST)?.sha256,
            Output::Nothing {} | Output::NotCollected {} => {
                empty_manifest().map_err(|fault| Failure::of(UNREADABLE, &fault))?
            }
        };
        if there == self.statement.subject {
            Ok(())
        } else {
            Err(Failure::new("manifest_mismatch", "the output is not the one that was signed"))
        }
    }

    fn same(&self, name: &str, stated: FileDigest, code: &'static str) -> Result<(), Failure> {
        let there = self.digest(name)?;
        if there == stated {
            return Ok(());
        }
        let (stated, there) = (stated.bytes, there.bytes);
        Err(Failure::new(code, format!("not the bytes that were signed ({stated} then, {there} now)")))
    }

    fn digest(&self, name: &str) -> Result<FileDigest, Failure> {
        digest_of(&self.directory.join(name)).map_err(|fault| unread(name, &fault))
    }

    /// The changes, once their bytes are known to be the signed ones.
    pub(super) fn changes(&self) -> Result<Record, Failure> {
        let Output::Collected { changes, .. } = &self.statement.result.output else {
            return Err(Failure::new(MISSING, "the statement has no output to compare with"));
        };
        self.same(CHANGES, *changes, "changes_mismatch")?;
        let malformed = |fault: io::Error| Failure::of("changes_malformed", &fault);
        let directory = File::open(self.directory).map_err(malformed)?;
        let record = Record::load(directory.as_fd()).map_err(malformed)?;
        let before = digest_before(&record.changes).map_err(malformed)?;
        let stated = self.statement.result.input.changed_paths_sha256;
        if record.manifest_sha256 != self.statement.subject || stated != Some(before) {
            return Err(Failure::new("changes_malformed", "they name another manifest or another input"));
        }
        Ok(record)
    }

    fn contents(&self) -> Result<(), Failure> {
        let record = self.changes()?;
        let unreadable = |fault: io::Error| unread("objects", &fault);
        let directory = File::open(self.directory).map_err(unreadable)?;
        let missing = not_stored(directory.as_fd(), &record).map_err(unreadable)?;
        none(&missing, "content_mismatch", "not kept as signed")
    }
}

/// Nothing, or the first few paths.
pub(super) fn none(paths: &[RelPath], code: &'static str, what: &str) -> Result<(), Failure> {
    if paths.is_empty() {
        return Ok(());
    }
    let named: Vec<String> = paths.iter().take(NAMED).map(ToString::to_string).collect();
    let more = paths.len().saturating_sub(NAMED);
    let more = if more == 0 { String::new() } else { format!(" and {more} more") };
    Err(Failure::new(code, format!("{what}: {}{more}", named.join(", "))))
}

fn unread(name: &str, fault: &io::Error) -> Failure {
    if fault.kind() == io::ErrorKind::NotFound {
        Failure::new(MISSING, format!("{name} is not there"))
    } else {
        Failure::of(UNREADABLE, fault)
    }
}
