//! The border: panics, pointers, UTF-8, the error of the thread, growing byte buffers of the caller.
use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};

/// Failures inside the crate are one sentence for a person.
pub type R<T> = Result<T, String>;

thread_local!(static LAST: RefCell<String> = const { RefCell::new(String::new()) });

/// Any displayable error as our error.
pub fn err(e: impl std::fmt::Display) -> String {
    e.to_string()
}

/// Runs `f`; a failure or a panic is kept for `slm_text_error` and `fail` is returned.
pub fn guard<T>(fail: T, f: impl FnOnce() -> R<T>) -> T {
    // A library does not print; this Rust runtime is ours alone, so its panic hook is too.
    static QUIET: std::sync::Once = std::sync::Once::new();
    QUIET.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    let message = match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(v)) => return v,
        Ok(Err(e)) => e,
        Err(p) => {
            let what = p.downcast_ref::<String>().cloned().or_else(|| p.downcast_ref::<&str>().map(|s| s.to_string()));
            format!("internal: {}", what.unwrap_or_else(|| "panic".into()))
        }
    };
    LAST.with(|l| *l.borrow_mut() = message);
    fail
}

/// # Safety
/// `p` points to `n` readable items, or `n` is 0.
pub unsafe fn slice<'a, T>(p: *const T, n: usize) -> R<&'a [T]> {
    if n == 0 {
        return Ok(&[]);
    }
    if p.is_null() || n > isize::MAX as usize / std::mem::size_of::<T>() {
        return Err("internal: null pointer or impossible length".into());
    }
    Ok(std::slice::from_raw_parts(p, n))
}

/// # Safety
/// As [`slice`].
pub unsafe fn text<'a>(p: *const u8, n: usize) -> R<&'a str> {
    std::str::from_utf8(slice(p, n)?).map_err(|e| format!("not UTF-8: {e}"))
}

/// # Safety
/// `p` is null or points to a live object of this library.
pub unsafe fn object<'a, T>(p: *const T) -> R<&'a T> {
    p.as_ref().ok_or_else(|| "internal: null object".to_string())
}

/// Where results of unknown length go: the callee appends, the caller owns the storage.
pub type Sink = extern "C" fn(context: *mut std::ffi::c_void, data: *const std::ffi::c_void, n: usize);

/// Hands `items` to the caller's sink.
pub fn give<T>(sink: Sink, context: *mut std::ffi::c_void, items: &[T]) {
    sink(context, items.as_ptr().cast(), items.len());
}

/// The last failure of this thread, borrowed until the next call on this thread.
///
/// # Safety
/// `n` is writable.
#[no_mangle]
pub unsafe extern "C" fn slm_text_error(n: *mut usize) -> *const u8 {
    LAST.with(|l| {
        let s = l.borrow();
        if !n.is_null() {
            *n = s.len();
        }
        s.as_ptr()
    })
}
