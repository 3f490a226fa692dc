//! Marks changes a reviewer must not miss: files that tools on the host act on by themselves, and names that mislead.
//!
//! A flag is advice to a person and takes nothing out of the result. Matching ignores ASCII case, because the host's
//! file system may.

mod repository;

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::change::{Change, Mode};
use super::link::Leads;
use crate::path::RelPath;
use repository::Repositories;

/// One thing worth a second look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flag {
    pub path: RelPath,
    pub category: Category,
}

/// Who would act on the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Category {
    Git,
    Hook,
    Editor,
    Agent,
    Shell,
    Interpreter,
    Ci,
    Build,
    PackageManager,
    Container,
    NewlyExecutable,
    LinkOutside,
    LinkIntoGit,
    DeceptiveName,
    Repository,
}

impl Category {
    /// Why it matters, for a person.
    #[must_use]
    pub fn why(self) -> &'static str {
        match self {
            Self::Git => "git reads it: filters, submodules, ignore rules",
            Self::Hook => "runs on commit, push or checkout",
            Self::Editor => "editors run tasks and settings from it when the folder is opened",
            Self::Agent => "coding agents take instructions, hooks or servers from it",
            Self::Shell => "a shell or environment manager runs it on entering the folder",
            Self::Interpreter => "an interpreter or debugger runs it when started in the folder",
            Self::Ci => "continuous integration runs it with the project's secrets",
            Self::Build => "runs when the project is built or tested",
            Self::PackageManager => {
                "decides what is downloaded, from where, and which scripts run on install"
            }
            Self::Container => "runs when an image or development container is built",
            Self::NewlyExecutable => "can now be executed",
            Self::LinkOutside => "symbolic link that leads out of the tree",
            Self::LinkIntoGit => "symbolic link that leads into git metadata",
            Self::Repository => {
                "lies in a git repository without .git, whose config names commands that git runs"
            }
            Self::DeceptiveName => "name is not what it looks like, or collides with another on some systems",
        }
    }
}

/// How a rule recognises a path; all patterns are lower case.
#[derive(Debug, Clone, Copy)]
enum Match {
    /// The last component.
    Name(&'static str),
    /// The start of the last component.
    Stem(&'static str),
    /// The end of the last component.
    Ending(&'static str),
    /// Any directory above the file.
    Within(&'static str),
    /// The path from the root.
    Below(&'static str),
}

use Match::{Below, Ending, Name, Stem, Within};

#[rustfmt::skip]
const RULES: &[(Category, &[Match])] = &[
    (Category::Git, &[
        Name(".gitattributes"), Name(".gitmodules"), Name(".gitignore"), Name(".gitconfig"),
        Name(".mailmap"), Name(".lfsconfig"),
    ]),
    (Category::Hook, &[
        Within("hooks"), Within(".husky"), Within(".githooks"), Stem(".pre-commit-"), Stem("lefthook."),
        Stem(".lefthook."), Stem(".lintstagedrc"), Stem(".overcommit"),
    ]),
    (Category::Editor, &[
        Within(".vscode"), Within(".idea"), Within(".vs"), Within(".fleet"), Within(".zed"),
        Within(".nvim"), Name(".vimrc"), Name(".exrc"), Name(".nvimrc"), Name(".nvim.lua"),
        Name(".dir-locals.el"), Name(".editorconfig"), Ending(".code-workspace"),
        Ending(".sublime-project"), Within(".helix"), Name("compile_commands.json"), Name(".clangd"),
    ]),
    (Category::Agent, &[
        Within(".claude"), Within(".codex"), Within(".cursor"), Within(".gemini"), Within(".continue"),
        Within(".windsurf"), Within(".opencode"), Within(".aider"), Within(".roo"), Within(".cline"),
        Within(".agents"), Stem(".aider."), Name("agents.md"), Name("claude.md"), Name("claude.local.md"),
        Name("gemini.md"), Name("copilot-instructions.md"), Name(".mcp.json"), Name("mcp.json"),
        Name("opencode.json"), Name(".cursorrules"), Name(".windsurfrules"), Name(".clinerules"),
        Name("skill.md"),
    ]),
    (Category::Shell, &[
        Name(".envrc"), Stem(".env"), Name(".bashrc"), Name(".bash_profile"), Name(".profile"),
        Name(".zshrc"), Name(".zshenv"), Name(".tool-versions"), Name("mise.toml"), Name(".mise.toml"),
        Name("flake.nix"), Name("shell.nix"), Name("default.nix"), Name(".autoenv"), Name(".inputrc"),
    ]),
    (Category::Interpreter, &[
        Name(".rprofile"), Name(".irbrc"), Name(".pryrc"), Name(".gdbinit"), Name(".lldbinit"),
    ]),
    (Category::Ci, &[
        Below(".github/workflows/"), Below(".github/actions/"), Name("action.yml"), Name("action.yaml"),
        Name("dependabot.yml"), Name("codeowners"), Stem(".gitlab-ci"), Within(".gitlab"),
        Stem("jenkinsfile"), Within(".circleci"), Stem("azure-pipelines"), Within(".azuredevops"),
        Stem(".travis."), Stem("appveyor."), Stem(".appveyor."), Within(".buildkite"),
        Stem("bitbucket-pipelines"), Stem(".drone."), Stem(".woodpecker"), Within(".woodpecker"),
        Stem("cloudbuild."), Stem(".cirrus."), Name("buildspec.yml"), Within(".forgejo"), Within(".gitea"),
        Within(".tekton"), Within(".semaphore"),
    ]),
    (Category::Build, &[
        Name("build.rs"), Within(".cargo"), Stem("rust-toolchain"), Stem("makefile"), Name("gnumakefile"),
        Ending(".mk"), Name("justfile"), Name(".justfile"), Stem("taskfile."), Name("cmakelists.txt"),
        Ending(".cmake"), Name("configure"), Name("configure.ac"), Name("meson.build"), Name("conftest.py"),
        Name("sitecustomize.py"), Name("usercustomize.py"), Ending(".pth"), Name("noxfile.py"),
        Name("tox.ini"), Name("pytest.ini"), Name("tasks.py"), Name("rakefile"), Ending(".gradle"),
        Ending(".gradle.kts"), Name("gradlew"), Name("mvnw"), Within(".mvn"), Name("pom.xml"),
        Name("build.xml"), Stem("webpack.config."), Stem("vite.config."), Stem("rollup.config."),
        Stem("jest.config."), Stem("vitest.config."), Stem("babel.config."), Stem(".babelrc"),
        Stem("eslint.config."), Stem(".eslintrc"), Stem("next.config."), Stem("postcss.config."),
        Stem("tailwind.config."), Stem("gulpfile."), Stem("gruntfile."), Name("workspace"),
        Name("build.bazel"), Name("module.bazel"), Name(".bazelrc"), Name("build.sbt"), Ending(".csproj"),
        Name("directory.build.props"), Name("directory.build.targets"), Name("build.zig"),
        Name("dodo.py"), Name(".pylintrc"), Name(".prettierrc.js"), Name(".prettierrc.cjs"),
        Name(".prettierrc.mjs"),
    ]),
    (Category::PackageManager, &[
        Name("package.json"), Name(".npmrc"), Stem(".yarnrc"), Within(".yarn"), Stem(".pnpmfile"),
        Name("pnpm-workspace.yaml"), Name("bunfig.toml"), Name("package-lock.json"), Name("yarn.lock"),
        Name("pnpm-lock.yaml"), Name("bun.lock"), Name("pyproject.toml"), Name("setup.py"),
        Name("setup.cfg"), Stem("requirements"), Name("pipfile"), Name("pipfile.lock"), Name("poetry.lock"),
        Name("uv.lock"), Name("uv.toml"), Name(".pypirc"), Name("pip.conf"), Name("cargo.toml"),
        Name("cargo.lock"), Name("go.mod"), Name("go.sum"), Name("go.work"), Name("gemfile"),
        Name("gemfile.lock"), Ending(".gemspec"), Name("composer.json"), Name("composer.lock"),
        Name("nuget.config"), Name("mix.exs"), Name("package.swift"), Name("podfile"), Name(".netrc"),
        Within(".bundle"),
    ]),
    (Category::Container, &[
        Stem("dockerfile"), Ending(".dockerfile"), Stem("containerfile"), Within(".devcontainer"),
        Stem(".devcontainer."), Stem("docker-compose"), Stem("compose.y"), Name(".dockerignore"),
        Stem("docker-bake."), Name("vagrantfile"), Name("skaffold.yaml"), Name("tiltfile"),
    ]),
];

/// Flags sorted changes; `leads` answers for symbolic links among the new contents, `in_base` for paths of the base.
pub(super) fn flags<E>(
    changes: &[Change],
    mut leads: impl FnMut(&Change) -> Result<Leads, E>,
    in_base: impl FnMut(&[u8]) -> bool,
) -> Result<Vec<Flag>, E> {
    let mut folded: HashMap<Vec<u8>, u32> = HashMap::new();
    for change in changes {
        *folded.entry(fold(&change.path)).or_default() += 1;
    }
    let mut repositories = Repositories::new(changes, in_base);
    let mut flags = Vec::new();
    for change in changes {
        let lower = fold(&change.path);
        let collides = folded.get(&lower).is_some_and(|&count| count > 1);
        let mut categories: Vec<Category> = RULES
            .iter()
            .filter(|(_, rules)| rules.iter().any(|rule| rule.matches(&lower)))
            .map(|rule| rule.0)
            .collect();
        if collides || is_deceptive(change.path.as_bytes()) {
            categories.push(Category::DeceptiveName);
        }
        if repositories.has(&change.path) {
            categories.push(Category::Repository);
        }
        if became_executable(change) {
            categories.push(Category::NewlyExecutable);
        }
        match leads(change)? {
            Leads::Inside => {}
            Leads::IntoGitMetadata => categories.push(Category::LinkIntoGit),
            Leads::Outside => categories.push(Category::LinkOutside),
        }
        flags.extend(categories.into_iter().map(|category| Flag { path: change.path.clone(), category }));
    }
    Ok(flags)
}

fn fold(path: &RelPath) -> Vec<u8> {
    path.as_bytes().to_ascii_lowercase()
}

impl Match {
    fn matches(self, path: &[u8]) -> bool {
        let mut reversed = path.rsplit(|&byte| byte == b'/');
        let name = reversed.next().unwrap_or_default();
        match self {
            Name(text) => name == text.as_bytes(),
            Stem(text) => name.starts_with(text.as_bytes()),
            Ending(text) => name.ends_with(text.as_bytes()),
            Within(text) => reversed.any(|above| above == text.as_bytes()),
            Below(text) => path.starts_with(text.as_bytes()),
        }
    }
}

fn became_executable(change: &Change) -> bool {
    let executable =
        |leaf: Option<super::change::Leaf>| leaf.is_some_and(|leaf| leaf.mode == Mode::Executable);
    executable(change.delta.result()) && !executable(change.delta.base())
}

/// Control bytes, bytes that are not text, characters that reorder or vanish, an option-like or reserved name, and
/// trailing blanks or dots.
fn is_deceptive(path: &[u8]) -> bool {
    let Ok(text) = std::str::from_utf8(path) else { return true };
    text.chars().any(crate::neutral::is_unsafe) || text.split('/').any(is_deceptive_name)
}

fn is_deceptive_name(name: &str) -> bool {
    const RESERVED: [&str; 6] = ["con", "prn", "aux", "nul", "conin$", "conout$"];
    let stem = name.split('.').next().unwrap_or_default().to_ascii_lowercase();
    let numbered = stem.strip_prefix("com").or_else(|| stem.strip_prefix("lpt"));
    let reserved = RESERVED.contains(&stem.as_str())
        || numbered.is_some_and(|digit| digit.len() == 1 && digit.bytes().all(|byte| byte.is_ascii_digit()));
    reserved || name.starts_with('-') || name.ends_with(['.', ' ']) || name.contains('\\')
}

#[cfg(test)]
mod tests;
