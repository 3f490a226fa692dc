//! Built-in sets of hosts for common tools: exact names only, with the hosts their downloads are
//! redirected to, because a redirect is a new request and is judged like any other.

use super::config::HostFault;
use super::pattern::HostRule;

named_enum! {
    /// A named set of hosts.
    pub enum Preset {
        /// `pypi.org` serves the index, `files.pythonhosted.org` the packages. Uploads use another host.
        Pypi => "pypi",
        /// `registry.npmjs.org` serves metadata and tarballs (and, with a token, takes uploads);
        /// `registry.yarnpkg.com` is the name older yarn lock files carry for it.
        Npm => "npm",
        /// `index.crates.io` is the sparse index, `static.crates.io` the packages; `crates.io` itself
        /// is not needed to build.
        Crates => "crates",
        /// `github.com` for git and release pages; archives are redirected to `codeload.github.com`,
        /// release assets to `objects.` and `release-assets.githubusercontent.com`, raw files are on
        /// `raw.githubusercontent.com`, large files on `media.githubusercontent.com`. The API host is
        /// left out: no clone or download needs it, and it takes writes with any token.
        Github => "github",
        /// `proxy.golang.org` serves modules, `sum.golang.org` their checksums. Some large modules are
        /// redirected to a bucket host every tenant can write to; those are refused.
        Go => "go",
        /// Maven Central under the name Maven uses and the name Gradle and older builds use.
        Maven => "maven",
        /// The package mirrors, over https; sources must be written with an https URL.
        Debian => "debian",
    }
}

impl Preset {
    /// What an allowlist starts with unless an operator says otherwise.
    pub const DEFAULT: [Self; 4] = [Self::Pypi, Self::Npm, Self::Crates, Self::Github];

    pub const fn hosts(self) -> &'static [&'static str] {
        match self {
            Self::Pypi => &["pypi.org", "files.pythonhosted.org"],
            Self::Npm => &["registry.npmjs.org", "registry.yarnpkg.com"],
            Self::Crates => &["index.crates.io", "static.crates.io"],
            Self::Github => &[
                "github.com",
                "codeload.github.com",
                "objects.githubusercontent.com",
                "release-assets.githubusercontent.com",
                "raw.githubusercontent.com",
                "media.githubusercontent.com",
            ],
            Self::Go => &["proxy.golang.org", "sum.golang.org"],
            Self::Maven => &["repo.maven.apache.org", "repo1.maven.org"],
            Self::Debian => &["deb.debian.org", "security.debian.org"],
        }
    }

    /// The hosts as rules, through the same parser as anyone's.
    pub fn rules(self) -> Result<Vec<HostRule>, HostFault> {
        self.hosts().iter().map(|host| HostRule::parse_config(host)).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::Preset;
    use crate::egress::HostPattern;

    #[test]
    fn every_preset_is_exact_https_and_accepted() {
        for preset in Preset::ALL {
            let rules = preset.rules().unwrap();
            let printed: Vec<String> = rules.iter().map(ToString::to_string).collect();
            assert_eq!(printed, preset.hosts(), "{preset}");
            let exact = rules.iter().all(|rule| matches!(rule.pattern(), HostPattern::Exact(_)));
            assert!(exact, "{preset}");
        }
    }
}
