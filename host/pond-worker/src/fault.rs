//! Marks the places where something else may happen: a death, another writer. Tests hook them; otherwise they are
//! nothing.

#[cfg(not(test))]
pub(crate) fn point() {}

#[cfg(test)]
pub(crate) use hooked::{point, with_hook};

#[cfg(test)]
mod hooked {
    use std::cell::RefCell;

    type Hook = Box<dyn FnMut(usize)>;

    thread_local! {
        static HOOK: RefCell<Option<(Hook, usize)>> = const { RefCell::new(None) };
    }

    pub(crate) fn point() {
        let taken = HOOK.with_borrow_mut(Option::take);
        if let Some((mut hook, passed)) = taken {
            hook(passed);
            HOOK.set(Some((hook, passed + 1)));
        }
    }

    /// Runs `body` with `hook` called at each point with its number; a hook that panics is the kill.
    pub(crate) fn with_hook<T>(hook: impl FnMut(usize) + 'static, body: impl FnOnce() -> T) -> T {
        HOOK.set(Some((Box::new(hook), 0)));
        let result = body();
        HOOK.set(None);
        result
    }
}
