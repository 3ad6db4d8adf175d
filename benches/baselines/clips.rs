//! Statistics of the generated sounds of experiments/federated.toml, for `benches/baselines/federated.py`: a line of JSON for
//! each clip of a trained class, with the mean and the deviation over time of each log-mel band.
//!
//! `cargo bench --bench clips > clips.jsonl`

#![expect(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark may panic, and prints its result")]

use xrun::bounded::ledger::Ledger;
use xrun::data::sound_clips::library::ClassSplit;
use xrun::data::sound_clips::open::open;
use xrun::data::sound_clips::settings::SoundClips;
use xrun::data::sound_clips::store::ClipStore;
use xrun::dataset::split::Split;
use xrun::settings::sections::Limits;

const BANDS: usize = 64;
/// Frames of 25 ms in a second, 10 ms apart.
const FRAMES: usize = 98;

fn main() {
    let settings = SoundClips::default();
    let loader = settings.loader_settings();
    let (limits, ledger) = (Limits::default(), Ledger::default());
    let store = ClipStore::new(open(&settings).unwrap(), &loader, &limits, [BANDS, FRAMES], &ledger).unwrap();
    for (split, is_held_out) in [(Split::Train, false), (Split::Validation, true)] {
        for clip in store.library.clips_of(ClassSplit::Federated, split) {
            let log_mel = store.log_mel(clip).unwrap();
            let moments = |band: usize| {
                let values = log_mel.iter().skip(band).step_by(BANDS);
                let mean = values.clone().sum::<f32>() / FRAMES as f32;
                [mean, (values.map(|value| (value - mean).powi(2)).sum::<f32>() / FRAMES as f32).sqrt()]
            };
            let x: Vec<f32> = (0..BANDS).flat_map(moments).collect();
            let class = store.library.clips[clip as usize].class;
            println!("{}", serde_json::json!({ "class": class, "is_held_out": is_held_out, "x": x }));
        }
    }
}
