//! What a process was started with, its arguments and its environment, and forgetting it.

use std::io;

/// Overwrites arguments and environment of this process, so that it knows no more of its caller than one that was executed
/// without either, and leaves `name` as its only argument.
///
/// For a process that has just been forked and never looks at them again.
pub fn forget(name: &str) -> io::Result<()> {
    let stat = std::fs::read("/proc/self/stat")?;
    let unreadable = || io::Error::new(io::ErrorKind::InvalidData, "/proc/self/stat");
    let [arguments, environment] = places(&String::from_utf8_lossy(&stat)).ok_or_else(unreadable)?;
    for place in [&arguments, &environment] {
        // SAFETY: the kernel says that it put the strings there, at the end of this process's stack, which is writable and
        // outlives everything. No reference into them exists: the standard library hands out copies, made at each call.
        unsafe { std::ptr::with_exposed_provenance_mut::<u8>(place.start).write_bytes(0, place.len()) };
    }
    // The zero after it stays.
    let length = name.len().min(arguments.len().saturating_sub(1));
    // SAFETY: as above, and `length` bytes fit.
    unsafe {
        let start = std::ptr::with_exposed_provenance_mut::<u8>(arguments.start);
        start.copy_from_nonoverlapping(name.as_ptr(), length);
    }
    Ok(())
}

/// Where the arguments and the environment lie. The program's name, which may be anything, ends at the last parenthesis.
fn places(stat: &str) -> Option<[std::ops::Range<usize>; 2]> {
    let (_, fields) = stat.rsplit_once(')')?;
    // The 48th field to the 51st, of which the name is the second.
    let mut bounds = fields.split_ascii_whitespace().skip(45).map_while(|field| field.parse::<usize>().ok());
    let mut range = || Some(bounds.next()?..bounds.next()?);
    let found = [range()?, range()?];
    found.iter().all(|place| 0 < place.start && place.start <= place.end).then_some(found)
}

#[cfg(test)]
mod tests {
    //! Found where the kernel says; that they are gone is seen from outside, in the tests of the launcher.
    use super::*;

    #[test]
    fn the_places_are_those_of_the_running_process() {
        let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
        let [arguments, environment] = places(&stat).unwrap();
        assert_eq!(arguments.len(), std::fs::read("/proc/self/cmdline").unwrap().len());
        assert_eq!(environment.len(), std::fs::read("/proc/self/environ").unwrap().len());
    }

    #[test]
    fn a_name_cannot_shift_the_fields() {
        let fields = (3..=52).map(|number| format!("{number}00")).collect::<Vec<_>>().join(" ");
        for name in ["pond", "a) b (c", "("] {
            let found = places(&format!("7 ({name}) {fields}"));
            assert_eq!(found, Some([4800..4900, 5000..5100]), "{name}");
        }
        for stat in ["", "7 (pond)", "7 (pond) S 1 2", &format!("7 (pond) S {}", "0 ".repeat(60))] {
            assert_eq!(places(stat), None, "{stat}");
        }
    }
}
