//! Mapping of CUDA's device indices to the GPUs of the machine.
//!
//! The management library (NVML) lists all GPUs by bus; CUDA numbers those that `CUDA_VISIBLE_DEVICES` names, in its order, up to the
//! first invalid name. `main` sets CUDA's order to that of the bus, too, unless the user has set another.

/// Environment variable with the order of CUDA's devices.
pub const ORDER_VARIABLE: &str = "CUDA_DEVICE_ORDER";
/// Value of [`ORDER_VARIABLE`] for the order of the management library.
pub const ORDER_BY_BUS: &str = "PCI_BUS_ID";

/// Indices into `uuids`, which are in the order of the bus, by CUDA's device index. `visible` is the value of
/// `CUDA_VISIBLE_DEVICES`, if it is set: indices, or prefixes of UUIDs.
pub fn visible_gpus(visible: Option<&str>, uuids: &[String]) -> Vec<usize> {
    let Some(visible) = visible else { return (0..uuids.len()).collect() };
    let mut found = Vec::new();
    for name in visible.split(',').map(str::trim) {
        let position = match name.parse::<usize>() {
            Ok(number) => (number < uuids.len()).then_some(number),
            Err(_) if name.is_empty() => None,
            Err(_) => uuids.iter().position(|uuid| uuid.to_lowercase().starts_with(&name.to_lowercase())),
        };
        match position {
            Some(position) if !found.contains(&position) => found.push(position),
            _ => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn visible_devices_are_numbered_as_in_the_cuda_manual() {
        let uuids: Vec<String> = ["GPU-aaaa-1", "GPU-bbbb-2", "GPU-cccc-3"].map(str::to_owned).into();
        for (visible, expected) in [
            (None, vec![0, 1, 2]),
            (Some(""), vec![]),
            (Some("1"), vec![1]),
            (Some("2, 0"), vec![2, 0]),
            (Some("0,7,1"), vec![0]),
            (Some("-1"), vec![]),
            (Some("GPU-bb"), vec![1]),
            (Some("gpu-CCCC-3,0"), vec![2, 0]),
            (Some("none"), vec![]),
            (Some("1,1"), vec![1]),
        ] {
            assert_eq!(visible_gpus(visible, &uuids), expected, "{visible:?}");
        }
    }
}
