//! Neural network building blocks that Burn lacks, and the training step. Each is checked against an independent source.

pub mod backbone;
pub mod callback;
pub mod captured;
pub mod checkpoint_weights;
pub mod conv_block;
pub mod encoder_block;
pub mod flat;
pub mod focal_loss;
pub mod generate;
pub mod gpt2;
pub mod gpt2_file;
pub mod gradients;
pub mod graph;
pub mod hugging_face;
pub mod leaks;
pub mod learned_scale;
pub mod matmul;
pub mod micro_batches;
pub mod module_task;
pub mod moving_range;
pub mod opening;
pub mod optimizer;
pub mod parameters;
pub mod pixels;
pub mod proximal;
pub mod step;
pub mod testing;
pub mod training_module;
pub mod transformer;
pub mod triplet_loss;
pub mod update_clock;
pub mod vit;

pub use burn::tensor::Tensor;
