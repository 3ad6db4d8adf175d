//! Classification of a backend's error messages.
//!
//! The only code that parses sentences: a backend reports failures only as text, sometimes with a backtrace and the whole
//! source of a kernel.

/// Cause of a backend's failure, as far as its message tells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Cause {
    /// The device had no memory for an allocation.
    OutOfMemory {
        /// Bytes requested; `None` where the message does not say.
        asked: Option<u64>,
    },
    /// A CUDA error, by its name in the manual.
    Cuda(String),
    /// Anything else: a bug, or an unknown message.
    Other,
}

/// CubeCL's messages of failed allocations: larger than any page may be, or no memory at present.
const ALLOCATION_FAILED: [&str; 2] = ["can't allocate buffer of size: ", "out of device memory allocating "];
const OUT_OF_MEMORY: &str = "CUDA_ERROR_OUT_OF_MEMORY";
/// Marker in front of a kernel's source in a message.
const SOURCE: &str = "[Source]";
/// Maximum length of a short message; the rest is in the log.
const SHORT_CHARACTERS_MAX: usize = 400;

/// Cause that a message of a backend states.
pub fn cause(message: &str) -> Cause {
    for marker in ALLOCATION_FAILED {
        if let Some((_, rest)) = message.split_once(marker) {
            let digits: String = rest.chars().take_while(char::is_ascii_digit).collect();
            return Cause::OutOfMemory { asked: digits.parse().ok() };
        }
    }
    let name = cuda_error(message);
    // wgpu's message, and the descriptions of drivers.
    if name == Some(OUT_OF_MEMORY) || message.to_lowercase().contains("out of memory") {
        return Cause::OutOfMemory { asked: None };
    }
    match name {
        Some(name) => Cause::Cuda(name.to_owned()),
        None => Cause::Other,
    }
}

/// Name of a CUDA error in a message, such as `CUDA_ERROR_ILLEGAL_ADDRESS`.
fn cuda_error(message: &str) -> Option<&str> {
    let from = &message[message.find("CUDA_ERROR_")?..];
    let end = from.find(|c: char| !(c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_')).unwrap_or(from.len());
    Some(&from[..end])
}

/// `true` if a message reports only that another thread has ended.
pub fn is_consequence(message: &str) -> bool {
    ["CallError", "RecvError", "SendError", "PoisonError"].iter().any(|error| message.contains(error))
}

/// Human-readable message: without Rust's prefix, backtrace and kernel source, and with the meaning of a CUDA error.
pub fn short(message: &str) -> String {
    let (message, location) = split_location(message);
    let (message, cut_source) = message.split_once(SOURCE).map_or((message, false), |(before, _)| (before, true));
    let message = message.strip_prefix("called `Result::unwrap()` on an `Err` value: ").unwrap_or(message);
    let lines = message.lines().map(str::trim).take_while(|line| !is_frame(line)).filter(|line| !is_noise(line));
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
    text.push_str(location);
    match cause(message) {
        Cause::Cuda(name) => meaning(&name).map_or(text.clone(), |meaning| format!("{text}: {meaning}")),
        _ => text,
    }
}

/// Splits off the source location that the panic hook appends.
fn split_location(message: &str) -> (&str, &str) {
    let location = message.rfind(" (").filter(|at| message.ends_with(')') && message[*at..].contains(".rs:"));
    location.map_or((message, ""), |at| message.split_at(at))
}

/// `true` for the first line of a frame in a backtrace: `12: name`.
fn is_frame(line: &str) -> bool {
    let (number, rest) = line.split_once(':').unwrap_or((line, ""));
    (!number.is_empty() && number.chars().all(|c| c.is_ascii_digit()) && rest.starts_with(' '))
        || line.starts_with("stack backtrace")
}

fn is_noise(line: &str) -> bool {
    line.is_empty() || line.starts_with("No backtrace available")
}

/// Meaning and cure of a common CUDA error.
pub fn meaning(name: &str) -> Option<&'static str> {
    Some(match name {
        "CUDA_ERROR_ILLEGAL_ADDRESS" | "CUDA_ERROR_MISALIGNED_ADDRESS" | "CUDA_ERROR_ILLEGAL_INSTRUCTION" => {
            "a kernel failed, which is a bug of the backend; the device is unusable until the program restarts"
        }
        "CUDA_ERROR_ECC_UNCORRECTABLE" => "the device's memory is defective; use another device",
        "CUDA_ERROR_LAUNCH_TIMEOUT" => "a kernel ran too long on a device that also drives a display",
        "CUDA_ERROR_NO_BINARY_FOR_GPU" => "a kernel was compiled for another model of GPU",
        "CUDA_ERROR_UNSUPPORTED_PTX_VERSION" => {
            "kernels were compiled by a newer CUDA than the driver supports; update the driver"
        }
        "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH" => {
            "libcuda.so.1 and the kernel module have different versions; restart the machine or the container after an \
                         update of the driver"
        }
        "CUDA_ERROR_SYSTEM_NOT_READY" => {
            "the driver is not ready; on machines with NVSwitch the fabric manager must run"
        }
        "CUDA_ERROR_DEVICE_UNAVAILABLE" | "CUDA_ERROR_DEVICE_ALREADY_IN_USE" => {
            "another process uses the device exclusively (`nvidia-smi -q -d COMPUTE` shows its mode)"
        }
        "CUDA_ERROR_NO_DEVICE" => "the driver finds no GPU; a container needs `--gpus all`",
        "CUDA_ERROR_DEVICE_LOST" | "CUDA_ERROR_CONTAINED" => "the device was lost; `dmesg` shows the reason (Xid)",
        "CUDA_ERROR_UNKNOWN" => {
            "the driver gives no reason; its kernel module may not be loaded (`nvidia-smi`, `nvidia-modprobe -u`)"
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failed_allocation_is_recognised_in_all_messages_of_backends() {
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
    fn a_cuda_error_is_named_and_explained() {
        let message = "called `Result::unwrap()` on an `Err` value: DriverError(CUDA_ERROR_ILLEGAL_ADDRESS, \"an illegal \
                    memory access was encountered\") (src/compute/sync/fence.rs:83)";
        assert_eq!(cause(message), Cause::Cuda("CUDA_ERROR_ILLEGAL_ADDRESS".into()));
        assert!(short(message).ends_with(meaning("CUDA_ERROR_ILLEGAL_ADDRESS").unwrap()));
    }

    #[test]
    fn kernel_source_and_backtrace_are_removed() {
        let source = "extern \"C\" __global__ void kernel() {}\n".repeat(100);
        let message = format!(
            "A compilation error happened during launch\nCaused by:\n  [Compilation Error] \n    default_program(6): \
             catastrophic error: cannot open source file \"cuda_runtime.h\"\n[Source]  \n{source} (client.rs:9)"
        );
        let text = short(&message);
        assert!(text.contains("cannot open source file \"cuda_runtime.h\""), "{text}");
        assert!(!text.contains("__global__") && text.len() < 300, "{text}");
        assert!(text.ends_with("(the kernel's source is in the log) (client.rs:9)"), "{text}");
        let backtrace = "no resource\n   0: cubecl::alloc\n             at src/a.rs:1\n   1: main\n (b.rs:2)";
        assert_eq!(short(backtrace), "no resource (b.rs:2)");
    }

    #[test]
    fn a_long_message_is_cut_and_a_short_one_is_unchanged() {
        assert!(short(&"word\n".repeat(1000)).chars().count() < 420);
        assert_eq!(short("step 7 panics (task.rs:62)"), "step 7 panics (task.rs:62)");
    }
}
