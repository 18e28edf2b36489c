//! Runs work that a stranger's file decides on a thread of its own, with a deep stack, a memory budget and a time limit.
//!
//! The template engine counts its steps, but a few operations inside it (joining lists that hold themselves, dropping a list
//! nested a million deep) neither count nor end, and Rust aborts the process when an allocation fails or a stack is full.
//! An allocator may not unwind either. So a thread that overdraws its budget tells its caller and then sleeps for good, with
//! what it holds: callers must give up on an input that does this.
use crate::ffi::{err, R};
use std::alloc::{GlobalAlloc, Layout, System};
use std::any::Any;
use std::cell::Cell;
use std::panic::{catch_unwind, resume_unwind, AssertUnwindSafe};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, Thread};
use std::time::{Duration, Instant};

/// Address space, not memory: only what recursion touches becomes real. The second is for hosts that refuse the first.
pub const STACKS: [usize; 2] = [1 << 30, 64 << 20];
/// Charged for each allocation beside its bytes, so that many small ones (the levels of nested data) count too.
const PER_ALLOCATION: i64 = 64;

const RUNNING: u8 = 0;
const DONE: u8 = 1;
const NO_MEMORY: u8 = 2;
const ABANDONED: u8 = 3;

#[derive(Clone, Copy)]
pub struct Limits {
    pub bytes: usize,
    pub time: Duration,
}

/// Why there is no result.
pub enum Stop {
    Failed(String),
    /// A limit; the thread is lost.
    Lost(String),
}

struct Watch {
    state: AtomicU8,
    caller: Thread,
}

thread_local! {
    static LEFT: Cell<i64> = const { Cell::new(i64::MAX) };
    static WATCH: Cell<*const Watch> = const { Cell::new(std::ptr::null()) };
}

fn charge(n: i64) {
    LEFT.with(|left| {
        left.set(left.get().saturating_sub(n));
        let watch = WATCH.with(Cell::get);
        if !watch.is_null() && n > 0 {
            // SAFETY: set only by `run`, whose thread owns a count of the Arc while the pointer is set.
            stop_if_lost(left.get(), unsafe { &*watch });
        }
    })
}

fn stop_if_lost(left: i64, watch: &Watch) {
    let state = watch.state.load(Ordering::Relaxed);
    if left >= 0 && state == RUNNING {
        return;
    }
    if watch.state.compare_exchange(RUNNING, NO_MEMORY, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
        watch.caller.unpark();
    }
    loop {
        thread::sleep(Duration::from_secs(3600));
    }
}

struct Counted;
#[global_allocator]
static ALLOCATOR: Counted = Counted;

// SAFETY: every call is the system allocator's; counting neither allocates nor unwinds.
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, l: Layout) -> *mut u8 {
        charge(l.size() as i64 + PER_ALLOCATION);
        System.alloc(l)
    }
    unsafe fn alloc_zeroed(&self, l: Layout) -> *mut u8 {
        charge(l.size() as i64 + PER_ALLOCATION);
        System.alloc_zeroed(l)
    }
    unsafe fn dealloc(&self, p: *mut u8, l: Layout) {
        charge(-(l.size() as i64 + PER_ALLOCATION));
        System.dealloc(p, l)
    }
    unsafe fn realloc(&self, p: *mut u8, l: Layout, size: usize) -> *mut u8 {
        charge(size as i64 - l.size() as i64);
        System.realloc(p, l, size)
    }
}

type Slot<T> = Mutex<Option<Result<R<T>, Box<dyn Any + Send>>>>;

/// Runs `f(stack bytes)`. It must own all it uses: when it overdraws, it keeps that for good. Panics arrive at the caller.
pub fn run<T: Send + 'static>(limits: Limits, f: impl FnOnce(usize) -> R<T> + Send + 'static) -> Result<T, Stop> {
    let watch = Arc::new(Watch { state: AtomicU8::new(RUNNING), caller: thread::current() });
    let result: Arc<Slot<T>> = Arc::new(Mutex::new(None));
    let work = Arc::new(Mutex::new(Some(f)));
    let mut started = Err(std::io::Error::other("no stack size"));
    for stack in STACKS {
        let (watch, result, work) = (watch.clone(), result.clone(), work.clone());
        started = thread::Builder::new().stack_size(stack).spawn(move || {
            let Some(f) = work.lock().ok().and_then(|mut w| w.take()) else { return };
            LEFT.with(|l| l.set(i64::try_from(limits.bytes).unwrap_or(i64::MAX)));
            WATCH.with(|w| w.set(Arc::as_ptr(&watch)));
            let r = catch_unwind(AssertUnwindSafe(|| f(stack)));
            WATCH.with(|w| w.set(std::ptr::null()));
            if let Ok(mut slot) = result.lock() {
                *slot = Some(r);
            }
            let _ = watch.state.compare_exchange(RUNNING, DONE, Ordering::AcqRel, Ordering::Relaxed);
            watch.caller.unpark();
        });
        if started.is_ok() {
            break;
        }
    }
    let handle = started.map_err(|e| Stop::Failed(format!("no thread for the template: {e}")))?;
    let end = Instant::now() + limits.time;
    loop {
        match watch.state.load(Ordering::Acquire) {
            RUNNING => {}
            DONE => break,
            _ => return Err(Stop::Lost(format!("the memory it needs exceeds {} MiB", limits.bytes >> 20))),
        }
        let now = Instant::now();
        if now < end {
            thread::park_timeout(end - now);
        } else if watch.state.compare_exchange(RUNNING, ABANDONED, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return Err(Stop::Lost(format!("its work exceeds {} s", limits.time.as_secs())));
        }
    }
    let _ = handle.join();
    let slot = result.lock().map_err(|e| Stop::Failed(err(e)))?.take();
    match slot {
        Some(Ok(r)) => r.map_err(Stop::Failed),
        Some(Err(panic)) => resume_unwind(panic),
        None => Err(Stop::Failed("internal: the thread left no result".into())),
    }
}
