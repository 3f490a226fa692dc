//! Every function with a body in a file, however deep it sits, with its place and its normalised tokens.

use proc_macro2::Span;
use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Function {
    /// Modules and type in front, as in `tests::a_case` or `Tree::load`.
    pub(crate) name: String,
    /// First line, its attributes and docs included.
    pub(crate) top: usize,
    /// The line of its signature.
    pub(crate) line: usize,
    /// Lines from signature to closing brace.
    pub(crate) lines: usize,
    /// Lines from opening to closing brace.
    pub(crate) body_lines: usize,
    pub(crate) signature: String,
    pub(crate) body: String,
}

pub(crate) fn of(file: &syn::File) -> Vec<Function> {
    let mut collector = Collector { outer: Vec::new(), found: Vec::new() };
    collector.visit_file(file);
    collector.found
}

struct Collector {
    outer: Vec<String>,
    found: Vec<Function>,
}

impl Collector {
    fn add(&mut self, whole: Span, sig: &syn::Signature, block: &syn::Block) {
        let (start, end) = (sig.span().start().line, block.span().end().line);
        let name = sig.ident.to_string();
        self.found.push(Function {
            name: self.outer.iter().chain([&name]).cloned().collect::<Vec<_>>().join("::"),
            top: whole.start().line,
            line: start,
            lines: end - start + 1,
            body_lines: end - block.span().start().line + 1,
            signature: sig.to_token_stream().to_string(),
            body: block.to_token_stream().to_string(),
        });
    }

    fn inside(&mut self, name: String, visit: impl FnOnce(&mut Self)) {
        self.outer.push(name);
        visit(self);
        self.outer.pop();
    }
}

impl<'ast> Visit<'ast> for Collector {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.add(item.span(), &item.sig, &item.block);
        self.inside(item.sig.ident.to_string(), |inner| visit::visit_item_fn(inner, item));
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.add(item.span(), &item.sig, &item.block);
        self.inside(item.sig.ident.to_string(), |inner| visit::visit_impl_item_fn(inner, item));
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        if let Some(block) = &item.default {
            self.add(item.span(), &item.sig, block);
        }
        self.inside(item.sig.ident.to_string(), |inner| visit::visit_trait_item_fn(inner, item));
    }

    fn visit_item_mod(&mut self, item: &'ast syn::ItemMod) {
        self.inside(item.ident.to_string(), |inner| visit::visit_item_mod(inner, item));
    }

    fn visit_item_trait(&mut self, item: &'ast syn::ItemTrait) {
        self.inside(item.ident.to_string(), |inner| visit::visit_item_trait(inner, item));
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = item.self_ty.to_token_stream().to_string().replace(' ', "");
        self.inside(name, |inner| visit::visit_item_impl(inner, item));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_are_found_wherever_they_sit() {
        let text = "mod m {\n    impl A<u8> {\n        /// Why.\n        fn f() {\n            fn g() {}\n        }\n    }\n}\n\
                    trait T {\n    fn bare();\n    fn given() { 1; }\n}\n";
        let found = of(&syn::parse_str(text).unwrap());
        let places: Vec<_> = found.iter().map(|f| (f.name.as_str(), f.top, f.line, f.lines)).collect();
        assert_eq!(places, [("m::A<u8>::f", 3, 4, 3), ("m::A<u8>::f::g", 5, 5, 1), ("T::given", 11, 11, 1)]);
    }

    #[test]
    fn layout_and_comments_do_not_change_the_tokens() {
        let body = |text: &str| of(&syn::parse_str(text).unwrap()).remove(0).body;
        assert_eq!(body("fn a() { f(1); }"), body("fn b() {\n    // why\n    f( 1 );\n}"));
        assert_ne!(body("fn a() { f(1); }"), body("fn a() { f(2); }"));
    }
}
