//! Order of training items that several pipelines share.

use xrun_data::order::Permutation;

/// Numbers of the items of batch `number`, of `size` out of `count` items: each once an epoch, in an order by seed, purpose and epoch.
/// A batch may extend into the next epoch.
pub fn items_of_batch(seed: u32, purpose: &str, number: u64, size: u64, count: u64) -> impl Iterator<Item = u64> {
    let mut order: Option<(u64, Permutation)> = None;
    (number * size..(number + 1) * size).map(move |position| {
        let epoch = position / count;
        let known = order.take().filter(|(of, _)| *of == epoch);
        let (_, this) = order.insert(known.unwrap_or_else(|| (epoch, Permutation::new(seed, purpose, epoch, count))));
        this.at(position % count)
    })
}
