//! Every package states an SPDX expression that the allowed licences satisfy.

use spdx::{Expression, Licensee, ParseMode};

use super::FILE;
use crate::tidy::Finding;
use crate::tidy::packages::Package;
use crate::tidy::tree::Tree;

const RULE: &str = "licences";

pub(crate) fn check(tree: &Tree) -> Vec<Finding> {
    let fault = |package: &Package| {
        let advice = format!("{} {}: {}", package.name, package.version, problem(tree, package)?);
        Some(Finding::new(FILE, tree.line_of(FILE, "[licenses]"), RULE, advice))
    };
    tree.packages.iter().filter_map(fault).collect()
}

fn problem(tree: &Tree, package: &Package) -> Option<String> {
    let Some(stated) = &package.licence else {
        return Some("states no licence; replace it".to_owned());
    };
    let exceptions = tree.deny.licenses.exceptions.iter().filter(|exception| exception.name == package.name);
    let allowed = tree.deny.licenses.allow.iter().chain(exceptions.flat_map(|exception| &exception.allow));
    let allowed: Result<Vec<Licensee>, _> = allowed.map(|licence| Licensee::parse(licence)).collect();
    // Older crates write `MIT/Apache-2.0`, which only the lax mode reads.
    match (allowed, Expression::parse_mode(stated, ParseMode::LAX)) {
        (Err(error), _) => Some(format!("the allow-list itself does not parse: {error}")),
        (_, Err(error)) => Some(format!("`{stated}` is not an SPDX expression: {error}")),
        (Ok(allowed), Ok(expression)) => {
            let accepted =
                expression.evaluate(|wanted| allowed.iter().any(|licensee| licensee.satisfies(wanted)));
            (!accepted).then(|| format!("`{stated}` is not covered by the allowed licences; replace it"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::deny::Exception;

    fn refused(licences: &[Option<&str>]) -> Vec<usize> {
        let package = |(licence, index): (&Option<&str>, u64)| Package {
            licence: licence.map(str::to_owned),
            ..Package::fetched("a", &format!("{index}.0.0"), "")
        };
        let mut tree = Tree::of(&[]).with(licences.iter().zip(0..).map(package).collect());
        tree.deny.licenses.allow =
            ["MIT", "Apache-2.0", "Apache-2.0 WITH LLVM-exception"].map(str::to_owned).to_vec();
        tree.deny.licenses.exceptions =
            vec![Exception { name: "b".to_owned(), allow: vec!["GPL-3.0-only".to_owned()] }];
        let advice: Vec<String> = check(&tree).into_iter().map(|finding| finding.advice).collect();
        (0..licences.len())
            .filter(|index| advice.iter().any(|line| line.starts_with(&format!("a {index}."))))
            .collect()
    }

    #[test]
    fn satisfied_expressions_pass() {
        let fine = [
            "MIT",
            "MIT OR GPL-3.0-only",
            "MIT/Apache-2.0",
            "MIT AND Apache-2.0",
            "Apache-2.0 WITH LLVM-exception",
        ];
        assert_eq!(refused(&fine.map(Some)), Vec::<usize>::new());
    }

    #[test]
    fn anything_else_is_refused() {
        let bad = [
            Some("GPL-3.0-only"),
            Some("MIT AND GPL-3.0-only"),
            Some("Apache-2.0 WITH Classpath-exception-2.0"),
            Some("mine"),
            None,
        ];
        assert_eq!(refused(&bad), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn an_exception_is_for_its_crate_alone() {
        let mut tree = Tree::of(&[])
            .with(vec![Package::fetched("b", "1.0.0", "MPL-2.0"), Package::fetched("c", "1.0.0", "MPL-2.0")]);
        tree.deny.licenses.exceptions =
            vec![Exception { name: "b".to_owned(), allow: vec!["MPL-2.0".to_owned()] }];
        let advice: Vec<String> = check(&tree).into_iter().map(|finding| finding.advice).collect();
        assert_eq!(advice, ["c 1.0.0: `MPL-2.0` is not covered by the allowed licences; replace it"]);
    }
}
