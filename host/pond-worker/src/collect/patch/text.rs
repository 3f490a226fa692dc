//! Unified hunks with three lines of context, over bytes.
//!
//! Every known diff algorithm has inputs on which it is quadratic, so the work is priced before it is done: where the
//! product of the differing lines is above the limit for one file, or what is left for the whole patch, the differing
//! middle becomes one hunk. The patch is as correct, only less fine. The price depends on the input alone, never on
//! time, so equal results give equal patches.

use std::io::{self, Write};
use std::ops::Range;

use imara_diff::{Algorithm, Diff, Hunk, InternedInput, sources::byte_lines};

const CONTEXT: u32 = 3;

/// The dearest single diff: two sides of some 30,000 lines that differ throughout.
const FILE_EFFORT: u64 = 1_000_000_000;

/// What is left of the work one patch may cost, in pairs of lines.
#[derive(Debug)]
pub(super) struct Effort(u64);

impl Effort {
    pub(super) fn new() -> Self {
        Self(4 * FILE_EFFORT)
    }

    fn affords(&mut self, price: u64) -> bool {
        match self.0.checked_sub(price) {
            Some(left) if price <= FILE_EFFORT => {
                self.0 = left;
                true
            }
            Some(_) | None => false,
        }
    }
}

pub(super) fn hunks(
    before: &[u8],
    after: &[u8],
    effort: &mut Effort,
    out: &mut impl Write,
) -> io::Result<()> {
    let old: Vec<&[u8]> = byte_lines(before).collect();
    let new: Vec<&[u8]> = byte_lines(after).collect();
    let middle = differing_middle(&old, &new);
    let price =
        u64::from(middle.before.end - middle.before.start) * u64::from(middle.after.end - middle.after.start);
    let found = if effort.affords(price) {
        let input = InternedInput::new(byte_lines(before), byte_lines(after));
        let mut diff = Diff::compute(Algorithm::Myers, &input);
        diff.postprocess_no_heuristic(&input);
        diff.hunks().collect()
    } else {
        vec![middle]
    };
    let mut group: Vec<Hunk> = Vec::new();
    for hunk in found {
        let apart = group.last().is_some_and(|last| hunk.before.start - last.before.end > 2 * CONTEXT);
        if apart {
            write_group(&group, &old, &new, out)?;
            group.clear();
        }
        group.push(hunk);
    }
    write_group(&group, &old, &new, out)
}

/// What is left when the lines both sides share at the start and at the end are set aside.
fn differing_middle(old: &[&[u8]], new: &[&[u8]]) -> Hunk {
    let shared = |pairs: &mut dyn Iterator<Item = (&&[u8], &&[u8])>| {
        pairs.take_while(|(one, other)| one == other).count()
    };
    let head = shared(&mut old.iter().zip(new));
    let room = old.len().min(new.len()) - head;
    let tail = shared(&mut old.iter().rev().zip(new.iter().rev()).take(room));
    let line = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
    Hunk { before: line(head)..line(old.len() - tail), after: line(head)..line(new.len() - tail) }
}

fn write_group(group: &[Hunk], old: &[&[u8]], new: &[&[u8]], out: &mut impl Write) -> io::Result<()> {
    let (Some(first), Some(last)) = (group.first(), group.last()) else { return Ok(()) };
    let old_end = u32::try_from(old.len()).unwrap_or(u32::MAX);
    let lead = first.before.start.min(CONTEXT);
    let trail = (old_end - last.before.end).min(CONTEXT);
    let removed = first.before.start - lead..last.before.end + trail;
    let added = first.after.start - lead..last.after.end + trail;
    writeln!(out, "@@ -{} +{} @@", span(&removed), span(&added))?;
    let mut at = removed.start;
    for hunk in group {
        write_lines(b' ', old, at..hunk.before.start, out)?;
        write_lines(b'-', old, hunk.before.clone(), out)?;
        write_lines(b'+', new, hunk.after.clone(), out)?;
        at = hunk.before.end;
    }
    write_lines(b' ', old, at..removed.end, out)
}

/// An empty range is named by the line before it.
fn span(range: &Range<u32>) -> String {
    let length = range.end - range.start;
    let start = if length == 0 { range.start } else { range.start + 1 };
    format!("{start},{length}")
}

fn write_lines(sign: u8, lines: &[&[u8]], range: Range<u32>, out: &mut impl Write) -> io::Result<()> {
    let (Ok(start), Ok(end)) = (usize::try_from(range.start), usize::try_from(range.end)) else {
        return Err(io::ErrorKind::InvalidInput.into());
    };
    for line in lines.get(start..end).unwrap_or_default() {
        out.write_all(&[sign])?;
        out.write_all(line)?;
        if !line.ends_with(b"\n") {
            out.write_all(b"\n\\ No newline at end of file\n")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn diff(before: &str, after: &str, effort: &mut Effort) -> String {
        let mut out = Vec::new();
        hunks(before.as_bytes(), after.as_bytes(), effort, &mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn too_dear_a_diff_is_one_hunk_between_what_both_sides_share() {
        let (before, after) = ("1\n2\nx\n3\ny\n4\n5\n6\n7\n", "1\n2\nX\n3\nY\n4\n5\n6\n7\n");
        let fine = "@@ -1,8 +1,8 @@\n 1\n 2\n-x\n+X\n 3\n-y\n+Y\n 4\n 5\n 6\n";
        let coarse = "@@ -1,8 +1,8 @@\n 1\n 2\n-x\n-3\n-y\n+X\n+3\n+Y\n 4\n 5\n 6\n";
        let mut effort = Effort(10);
        assert_eq!(diff(before, after, &mut effort), fine);
        assert_eq!(diff(before, after, &mut effort), coarse);
        assert!(!Effort::new().affords(FILE_EFFORT + 1), "one file may not take it all");
    }

    #[test]
    fn pure_growth_of_repeated_lines_is_found_between_the_shared_ends() {
        let expected = "@@ -1,2 +1,3 @@\n a\n a\n+a\n";
        assert_eq!(diff("a\na\n", "a\na\na\n", &mut Effort::new()), expected);
        assert_eq!(diff("a\na\n", "a\na\na\n", &mut Effort(0)), expected);
    }
}
