//! Settings of the synthetic videos.

use xrun_core::settings;

settings! {
    /// Synthetic videos, generated once: textured objects of several classes that move over cluttered moving backgrounds, change
    /// size and pass behind one another, with a box around each object in each frame and reference images by class.
    pub struct SyntheticVideo {
        /// Classes to train on.
        #[schemars(range(min = 2, max = 1000))]
        pub train_classes: usize = 24,
        /// Classes held out; no class is both. 0 is the data of an ordinary detector, of fixed classes.
        #[schemars(range(min = 0, max = 1000))]
        pub validation_classes: usize = 8,
        /// Videos of each class.
        #[schemars(range(min = 1, max = 10_000))]
        pub videos_per_class: usize = 4,
        /// Frames of each video.
        #[schemars(range(min = 1, max = 10_000))]
        pub frames_per_video: usize = 12,
        /// Reference images of each class.
        #[schemars(range(min = 2, max = 10_000))]
        pub references_per_class: usize = 6,
        /// The side of a frame, in pixels.
        #[schemars(range(min = 32, max = 2048))]
        pub frame_size: usize = 96,
        /// Seed of the generated set; the experiment's seed does not change it, so that runs with several seeds see the
        /// same data.
        pub seed: u32 = 0,
    }
}
