//! What do the words of a backend that failed mean?
//!
//! The one place where sentences are read. A backend gives its reasons as panics and as errors that are text, sometimes
//! with a stack and with the whole source of a kernel behind them; there is nothing else to go by.

/// Why a backend failed, as far as its words say.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The device had no memory for its pool; how much was asked for, where that is said.
    OutOfMemory {
        /// Bytes; `None` where the words do not say.
        asked: Option<u64>,
    },
    /// An error of CUDA, by its name in the manual.
    Cuda(String),
    /// The way that was tuned for one size of an operation cannot do another size that counts as the same.
    Tuned,
    /// Anything else: a bug, or words that are not known.
    Other,
}

/// Words of CubeCL about an allocation that was refused: one that is larger than any page may be, or one for which there is no
/// memory now.
const REFUSED: [&str; 2] = ["can't allocate buffer of size: ", "out of device memory allocating "];
/// Words of CubeCL where a kernel that was found fastest refuses a size that has the same key.
const REFUSED_SIZE: &str = "Should run when selected by autotune";
const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY";
/// What CubeCL's kernel source stands behind in a message.
const SOURCE: &str = "[Source]";
/// More of a message is for the log.
const SHORT_CHARACTERS_MAX: usize = 400;

/// What a message of a backend means.
pub fn cause(said: &str) -> Cause {
    for words in REFUSED {
        if let Some((_, rest)) = said.split_once(words) {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            return Cause::OutOfMemory { asked: digits.parse().ok() };
        }
    }
    let named = cuda_error(said);
    // The words of wgpu, and of drivers in their descriptions.
    if named == Some(OUT_OF_MEMORY) || said.to_lowercase().contains("out of memory") {
        return Cause::OutOfMemory { asked: None };
    }
    match named {
        Some(name) => Cause::Cuda(name.to_owned()),
        None if said.contains(REFUSED_SIZE) => Cause::Tuned,
        None => Cause::Other,
    }
}

/// `CUDA_ERROR_ILLEGAL_ADDRESS` in a message that has such a word.
fn cuda_error(said: &str) -> Option<&str> {
    let from = &said[said.find("CUDA_ERROR_")?..];
    let end = from.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(from.len());
    Some(&from[..end])
}

/// Whether a panic says only that the thread that was waited for is gone.
pub fn is_consequence(said: &str) -> bool {
    ["CallError", "RecvError", "SendError", "PoisonError"].iter().any(|word| said.contains(word))
}

/// The message as people should read it: without what Rust puts before it, a stack, and the source of a kernel; and with
/// what an error of CUDA means.
pub fn short(said: &str) -> String {
    let (said, place) = without_place(said);
    let (said, cut_source) = said.split_once(SOURCE).map_or((said, false), |(before, _)| (before, true));
    let said = said.strip_prefix("called `Result::unwrap()` on an `Err` value: ").unwrap_or(said);
    let lines = said.lines().map(str::trim).take_while(|line| !is_frame(line)).filter(|line| !is_noise(line));
    let mut text = String::new();
    for line in lines {
        if text.chars().count() + line.chars().count() > SHORT_CHARACTERS_MAX && !text.is_empty() {
            text.push_str(" …");
            break;
        }
        if !text.is_empty() {
            text.push(' ');
        }
        text.extend(line.chars().take(SHORT_CHARACTERS_MAX));
    }
    if cut_source {
        text.push_str(" (the kernel's source is in the log)");
    }
    text.push_str(place);
    match cause(said) {
        Cause::Cuda(name) => meaning(&name).map_or(text.clone(), |meaning| format!("{text}: {meaning}")),
        _ => text,
    }
}

/// The message and the place in the source that the hook put behind it.
fn without_place(said: &str) -> (&str, &str) {
    let place = said.rfind(" (").filter(|at| said.ends_with(')') && said[*at..].contains(".rs:"));
    place.map_or((said, ""), |at| said.split_at(at))
}

/// A frame of a stack: "  12: name", and the place below it.
fn is_frame(line: &str) -> bool {
    let (number, rest) = line.split_once(':').unwrap_or((line, ""));
    (!number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) && rest.starts_with(' '))
        || line.starts_with("stack backtrace")
}

fn is_noise(line: &str) -> bool {
    line.is_empty() || line.starts_with("No backtrace available")
}

/// What an error of CUDA means, and what to do; of those that people meet.
pub fn meaning(name: &str) -> Option<&'static str> {
    Some(match name {
        "CUDA_ERROR_ILLEGAL_ADDRESS" | "CUDA_ERROR_MISALIGNED_ADDRESS" | "CUDA_ERROR_ILLEGAL_INSTRUCTION" => {
            "a kernel went wrong on the device, which is a bug of the backend; nothing can be computed on it until the \
             program starts again"
        }
        "CUDA_ERROR_ECC_UNCORRECTABLE" => "the device's memory is broken; ask for another device",
        "CUDA_ERROR_LAUNCH_TIMEOUT" => "a kernel ran too long on a device that also drives a display",
        "CUDA_ERROR_NO_BINARY_FOR_GPU" => "a kernel was compiled for another GPU",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" => "kernels are of a newer CUDA than the driver; install a newer driver",
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" => {
            "libcuda.so.1 and the kernel's driver are of different versions; after an update of the driver, restart the \
             machine or the container"
        }
        "CUDA_ERROR_SYSTEM_NOT_READY" => {
            "the driver is not ready; on machines with NVSwitch the fabric manager must run"
        }
        "CUDA_ERROR_DEVICE_UNAVAILABLE" | "CUDA_ERROR_DEVICE_ALREADY_IN_USE" => {
            "another process has the device for itself (`nvidia-smi -q -d COMPUTE` shows its mode)"
        }
        "CUDA_ERROR_NO_DEVICE" => "the driver sees no GPU; in a container, it must be given one (`--gpus all`)",
        "CUDA_ERROR_DEVICE_LOST" | "CUDA_ERROR_CONTAINED" => "the device was lost; `dmesg` says why (Xid)",
        "CUDA_ERROR_UNKNOWN" => {
            "the driver gives no reason; often its kernel module is not loaded (`nvidia-smi`, `nvidia-modprobe -u`)"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_that_was_refused_is_out_of_memory_in_all_words_of_the_backend() {
        let asked = |bytes| Cause::OutOfMemory { asked: Some(bytes) };
        let error =
            "called `Result::unwrap()` on an `Err` value: out of device memory allocating 21474836480 bytes\n   0: a";
        assert_eq!(cause(error), asked(21_474_836_480));
        assert_eq!(cause("can't allocate buffer of size: 4096\nNo backtrace available"), asked(4096));
        let driver = "DriverError(CUDA_ERROR_OUT_OF_MEMORY, \"out of memory\") (storage.rs:3)";
        assert_eq!(cause(driver), Cause::OutOfMemory { asked: None });
        assert_eq!(cause("wgpu error: Out of Memory"), Cause::OutOfMemory { asked: None });
        assert_eq!(cause("index out of bounds"), Cause::Other);
    }

    #[test]
    fn an_error_of_cuda_is_named_and_explained() {
        let said = "called `Result::unwrap()` on an `Err` value: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal \
                    memory access was encountered\") (src/compute/sync/fence.rs:83)";
        assert_eq!(cause(said), Cause::Cuda("CUDA_ERROR_ILLEGAL_ADDRESS".into()));
        let short = short(said);
        assert!(short.starts_with("DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal memory"), "{short}");
        assert!(short.ends_with("until the program starts again"), "{short}");
    }

    #[test]
    fn a_kernel_that_was_tuned_for_another_size_is_no_fault_of_the_device() {
        assert_eq!(cause("Should run when selected by autotune.: Unknown(\"shape\") (local.rs:207)"), Cause::Tuned);
        assert_eq!(cause("[Compilation Error] default_program(6): catastrophic error"), Cause::Other);
    }

    #[test]
    fn the_source_of_a_kernel_and_a_stack_are_left_out() {
        let source = "extern \"C\" __global__ void kernel() {}\n".repeat(100);
        let said = format!(
            "A compilation error happened during launch\nCaused by:\n  [Compilation Error] \n    default_program(6): \
             catastrophic error: cannot open source file \"cuda_runtime.h\"\n[Source]  \n{source} (client.rs:9)"
        );
        let text = short(&said);
        assert!(text.contains("cannot open source file \"cuda_runtime.h\""), "{text}");
        assert!(!text.contains("__global__") && text.len() < 300, "{text}");
        assert!(text.ends_with("(the kernel's source is in the log) (client.rs:9)"), "{text}");
        let stack = "no resource\n   0: cubecl::alloc\n             at src/a.rs:1\n   1: main\n (b.rs:2)";
        assert_eq!(short(stack), "no resource (b.rs:2)");
    }

    #[test]
    fn a_long_message_is_cut_and_a_plain_one_stays_as_it_is() {
        assert!(short(&"word\n".repeat(1000)).chars().count() < 420);
        assert_eq!(short("step 7 panics (task.rs:62)"), "step 7 panics (task.rs:62)");
    }
}
