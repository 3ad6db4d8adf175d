//! Whose memory pool is asked?
//!
//! CubeCL gives each thread that uses a device a stream, and each stream a pool of its own, which stays when the thread has
//! ended. There are as many streams as its configuration says (128 by default); further threads share them.

use cubecl::Runtime;
use cubecl::client::ComputeClient;
use cubecl::config::{CubeClRuntimeConfig, RuntimeConfig};
use cubecl::stream_id::StreamId;

use crate::results::format::DeviceMemory;

/// The number of the calling thread's stream.
pub fn current() -> u64 {
    StreamId::current().value % u64::from(CubeClRuntimeConfig::get().streaming.max_streams.max(1))
}

/// The pool of a stream, or of the calling thread's own: of more than one at a time CubeCL 0.10 cannot be asked.
pub fn memory<R: Runtime>(client: &ComputeClient<R>, stream: Option<u64>) -> Option<DeviceMemory> {
    let ask = || client.memory_usage().ok();
    let usage = match stream {
        Some(value) => StreamId { value }.executes(ask),
        None => ask(),
    }?;
    Some(DeviceMemory { in_use: usage.bytes_in_use, reserved: usage.bytes_reserved, allocations: usage.number_allocs })
}
