//! Which of the machine's GPUs does CUDA count, and in which order?
//!
//! The management library (NVML) lists all of them by bus; CUDA counts those that `CUDA_VISIBLE_DEVICES` names, in its
//! order, up to the first name that is none. `main` asks CUDA to count by bus, too, unless the user asks otherwise.

/// The order of devices that makes both count alike.
pub const ORDER_VARIABLE: &str = "CUDA_DEVICE_ORDER";
/// The value of [`ORDER_VARIABLE`] by which CUDA counts as the driver lists.
pub const ORDER_BY_BUS: &str = "PCI_BUS_ID";

/// Positions in `uuids`, which are listed by bus, in the order in which CUDA counts them. `visible` is the value of
/// `CUDA_VISIBLE_DEVICES`, if it is set: numbers, or the beginnings of UUIDs.
pub fn counted(visible: Option<&str>, uuids: &[String]) -> Vec<usize> {
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
    fn visible_devices_are_counted_as_the_cuda_manual_says() {
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
            assert_eq!(counted(visible, &uuids), expected, "{visible:?}");
        }
    }
}
