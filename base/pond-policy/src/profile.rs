//! Profiles: each name fixes an isolation posture that nothing can loosen. Overrides touch quantities; the posture is
//! derived from the name alone, every time it is asked for.

use crate::duration::Timeout;
use crate::limits::{Cpus, Disk, GIB, Limits, MIB, Memory, Pids, TmpfsSize, Ulimits};
use crate::tier::Tier;

named_enum! {
    pub enum Profile {
        /// No confinement: an explicit opt-out.
        None => "none",
        /// Read-only analysis.
        Read => "untrusted-code-read",
        /// The full coding harness.
        Write => "untrusted-code-write",
        /// Untrusted tests or generated code.
        Test => "untrusted-code-test",
        /// Agent boxes with companions.
        Internet => "untrusted-code-internet",
    }
}

named_enum! {
    /// What of the host's files the job sees.
    pub enum Filesystem {
        Host => "host",
        ReadOnlyCheckout => "read-only-checkout",
        ThrowawayCopy => "throwaway-copy",
        DeclaredOnly => "declared-only",
    }
}

named_enum! {
    /// What the job can reach.
    pub enum Network {
        Open => "open",
        /// The model, through the broker, and nothing else.
        BrokerOnly => "broker-only",
        /// The broker, and listed hosts over TLS.
        Allowlist => "allowlist",
        /// Nothing at all.
        Sealed => "none",
        /// Any public host; never the host, its network, metadata services or other sandboxes.
        Internet => "internet",
    }
}

named_enum! {
    /// Which commands may be launched.
    pub enum Commands {
        Any => "any",
        Allowlisted => "allowlist",
    }
}

named_enum! {
    /// Dropped capabilities, no-new-privileges, non-root, read-only root, seccomp, ulimits, quotas: all or nothing.
    pub enum Hardening {
        Off => "off",
        Full => "full",
    }
}

/// The part of a profile nothing can change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posture {
    pub filesystem: Filesystem,
    pub network: Network,
    pub commands: Commands,
    pub hardening: Hardening,
}

/// How long a job of a profile runs unless told otherwise, and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeRule {
    pub default: Timeout,
    pub most: Timeout,
}

const ULIMITS: Ulimits = Ulimits { nofile: 16_384, core: 0, stack: 8 * MIB };

impl Profile {
    /// Every accepted spelling: names, then aliases.
    pub const SPELLINGS: &'static [&'static str] = &[
        Self::None.name(),
        Self::Read.name(),
        Self::Write.name(),
        Self::Test.name(),
        Self::Internet.name(),
        Self::None.alias(),
        Self::Read.alias(),
        Self::Write.alias(),
        Self::Test.alias(),
        Self::Internet.alias(),
    ];

    /// The profile of a name or an alias.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|profile| [profile.name(), profile.alias()].contains(&text))
    }

    pub const fn alias(self) -> &'static str {
        match self {
            Self::None => "dev",
            Self::Read => "review",
            Self::Write => "harness",
            Self::Test => "sealed",
            Self::Internet => "box",
        }
    }

    pub const fn purpose(self) -> &'static str {
        match self {
            Self::None => "code you trust, on your own machine: an explicit opt-out",
            Self::Read => "read-only analysis",
            Self::Write => "the full coding harness: edit, build, test, install",
            Self::Test => "run untrusted tests or generated code",
            Self::Internet => "agent boxes with companions",
        }
    }

    pub const fn posture(self) -> Posture {
        let (filesystem, network, commands, hardening) = match self {
            Self::None => (Filesystem::Host, Network::Open, Commands::Any, Hardening::Off),
            Self::Read => (Filesystem::ReadOnlyCheckout, Network::BrokerOnly, Commands::Any, Hardening::Full),
            Self::Write => (Filesystem::ThrowawayCopy, Network::Allowlist, Commands::Any, Hardening::Full),
            Self::Test => {
                (Filesystem::ThrowawayCopy, Network::Sealed, Commands::Allowlisted, Hardening::Full)
            }
            Self::Internet => (Filesystem::DeclaredOnly, Network::Internet, Commands::Any, Hardening::Full),
        };
        Posture { filesystem, network, commands, hardening }
    }

    /// The limits a confined job gets when it asks for none; `None` for the unconfined profile.
    pub const fn limits(self) -> Option<Limits> {
        match self {
            Self::None => None,
            Self::Read => Some(limits(2, 256, 256, disk(1, 100_000))),
            Self::Write => Some(limits(4, 512, 512, disk(10, 1_000_000))),
            Self::Test => Some(limits(2, 256, 256, disk(2, 200_000))),
            Self::Internet => Some(limits(4, 1024, 512, disk(20, 1_000_000))),
        }
    }

    pub const fn time(self) -> TimeRule {
        let (default, most) = match self {
            Self::None | Self::Write | Self::Internet => (Timeout::fixed(3600), Timeout::MOST),
            Self::Read => (Timeout::fixed(1800), Timeout::MOST),
            Self::Test => (Timeout::fixed(60), Timeout::fixed(60)),
        };
        TimeRule { default, most }
    }

    /// Confined work goes to the operator's own machines unless its author says otherwise.
    pub const fn default_tier(self) -> Tier {
        match self {
            Self::None => Tier::Any,
            Self::Read | Self::Write | Self::Test | Self::Internet => Tier::Trusted,
        }
    }

    pub const fn is_confined(self) -> bool {
        matches!(self.posture().hardening, Hardening::Full)
    }

    /// Whether hosts added to an allowlist would mean anything.
    pub const fn has_allowlist(self) -> bool {
        matches!(self.posture().network, Network::Allowlist)
    }
}

/// Memory in GiB, pids, tmpfs in MiB; every confined profile starts with two processors.
const fn limits(memory: u64, pids: u64, tmpfs: u64, disk: Disk) -> Limits {
    Limits {
        memory: Memory::fixed(memory * GIB),
        cpus: Cpus::fixed(2),
        pids: Pids::fixed(pids),
        tmpfs: TmpfsSize::fixed(tmpfs * MIB),
        disk,
        ulimits: ULIMITS,
    }
}

const fn disk(gib: u64, inodes: u64) -> Disk {
    Disk { bytes: gib * GIB, inodes }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_catalogue_is_the_contract() {
        let rows: Vec<[&str; 6]> = Profile::ALL
            .iter()
            .map(|profile| {
                let posture = profile.posture();
                let tier = profile.default_tier();
                [
                    profile.name(),
                    profile.alias(),
                    posture.filesystem.name(),
                    posture.network.name(),
                    posture.commands.name(),
                    tier.name(),
                ]
            })
            .collect();
        assert_eq!(
            rows,
            [
                ["none", "dev", "host", "open", "any", "any"],
                ["untrusted-code-read", "review", "read-only-checkout", "broker-only", "any", "trusted"],
                ["untrusted-code-write", "harness", "throwaway-copy", "allowlist", "any", "trusted"],
                ["untrusted-code-test", "sealed", "throwaway-copy", "none", "allowlist", "trusted"],
                ["untrusted-code-internet", "box", "declared-only", "internet", "any", "trusted"],
            ]
        );
    }

    #[test]
    fn default_limits_are_the_contract_and_within_bounds() {
        let printed = |profile: Profile| {
            profile.limits().map(|limits| {
                let Limits { memory, cpus, pids, tmpfs, disk, ulimits } = limits;
                assert_eq!(Memory::parse(&memory.to_string()), Ok(memory));
                assert_eq!(TmpfsSize::parse(&tmpfs.to_string()), Ok(tmpfs));
                assert_eq!(Cpus::parse(&cpus.to_string()), Ok(cpus));
                assert_eq!(Pids::parse(&pids.to_string()), Ok(pids));
                assert_eq!(ulimits.core, 0);
                format!("{memory} {cpus} {pids} {tmpfs} {}g {}", disk.bytes / GIB, disk.inodes)
            })
        };
        assert_eq!(printed(Profile::None), None);
        assert_eq!(printed(Profile::Read).unwrap(), "2g 2 256 256m 1g 100000");
        assert_eq!(printed(Profile::Write).unwrap(), "4g 2 512 512m 10g 1000000");
        assert_eq!(printed(Profile::Test).unwrap(), "2g 2 256 256m 2g 200000");
        assert_eq!(printed(Profile::Internet).unwrap(), "4g 2 1024 512m 20g 1000000");
    }

    #[test]
    fn sealed_jobs_end_after_a_minute() {
        let minute = Timeout::parse("60s").unwrap();
        assert_eq!(Profile::Test.time(), TimeRule { default: minute, most: minute });
        for profile in Profile::ALL {
            assert!(profile.time().default <= profile.time().most);
        }
    }

    #[test]
    fn every_spelling_names_its_profile() {
        for profile in Profile::ALL {
            assert_eq!(Profile::parse(profile.name()), Some(*profile));
            assert_eq!(Profile::parse(profile.alias()), Some(*profile));
            assert!(
                Profile::SPELLINGS.contains(&profile.name()) && Profile::SPELLINGS.contains(&profile.alias())
            );
        }
        assert_eq!(Profile::SPELLINGS.len(), 2 * Profile::ALL.len());
        for text in ["", "None", "NONE", "none ", "untrusted_code_write", "untrusted-code-writ\u{435}"] {
            assert_eq!(Profile::parse(text), None, "{text:?}");
        }
    }
}
