//! Vision Transformer (Dosovitskiy et al. 2021) and DINOv2 (Oquab et al. 2023) in the names of Hugging Face.

use serde::Serialize;

use super::tensors::TensorShapes;
use super::{Architecture, Family, Layers, Normalisation};

pub(super) const FAMILY: Family = Family {
    name: "vit",
    markers: &[
        ("encoder.layer.0.layernorm_before.weight", "Hugging Face's ViTModel"),
        ("encoder.layer.0.norm1.weight", "Hugging Face's Dinov2Model"),
    ],
    read,
};

/// Encoder of patches and a class token.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Transformer {
    /// Beginning of the names in the file.
    #[serde(skip)]
    pub prefix: String,
    /// Names of a block in the file.
    #[serde(skip)]
    pub names: Names,
    /// Features of a token.
    pub width: usize,
    /// Hidden features of the MLP of a block.
    pub hidden: usize,
    /// Number of blocks.
    pub blocks: usize,
    /// Number of attention heads.
    pub heads: usize,
    /// Side of a patch in pixels.
    pub patch_size: usize,
    /// Patches along a side of the images that the positions of the file are for.
    #[serde(skip)]
    pub positions: usize,
    /// Patches along a side of the images here.
    pub cells: usize,
    /// Epsilon of layer normalisation.
    pub epsilon: f64,
    /// True if the mean of the patches is a part of the pooled features beside the class token, as in the classifier of DINOv2.
    pub mean_of_patches: bool,
}

/// Names in a block of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Names {
    /// Normalisation before the attention, and before the MLP.
    pub norms: [&'static str; 2],
    /// First and second layer of the MLP.
    pub mlp: [&'static str; 2],
    /// LayerScale (Touvron et al. 2021) of the attention, and of the MLP.
    pub scales: Option<[&'static str; 2]>,
}

/// Layers of the attention: queries, keys, values, output.
pub const ATTENTION: [&str; 4] =
    ["attention.attention.query", "attention.attention.key", "attention.attention.value", "attention.output.dense"];
/// Kernel and bias of the patches.
pub const PATCHES: &str = "embeddings.patch_embeddings.projection";
/// Class token.
pub const CLASS: &str = "embeddings.cls_token";
/// Positions of the class token and of the patches.
pub const POSITIONS: &str = "embeddings.position_embeddings";
/// Last normalisation.
pub const NORM: &str = "layernorm";

const VIT: Names =
    Names { norms: ["layernorm_before", "layernorm_after"], mlp: ["intermediate.dense", "output.dense"], scales: None };
const DINOV2: Names = Names {
    norms: ["norm1", "norm2"],
    mlp: ["mlp.fc1", "mlp.fc2"],
    scales: Some(["layer_scale1.lambda1", "layer_scale2.lambda1"]),
};

/// Features of a head of all published sizes but that of [`HUGE`].
const HEAD: usize = 64;
/// Width of ViT-H, and its number of heads.
const HUGE: [usize; 2] = [1280, 16];

fn read(file: &mut TensorShapes) -> Result<Architecture, String> {
    let (names, family) = match file.has("encoder.layer.0.norm1.weight") {
        true => (DINOV2, "DINOv2"),
        false => (VIT, "ViT"),
    };
    file.ignore(&["pooler.", "classifier.", "embeddings.mask_token"]);
    let kernel = file.shape(&format!("{PATCHES}.weight"))?;
    let (width, patch_size) = match kernel[..] {
        [width, 3, height, side] if width * side > 0 && height == side => (width, side),
        _ => return Err(format!("has `{PATCHES}.weight` of shape {kernel:?}, expected [width, 3, side, side]")),
    };
    file.expect(&format!("{PATCHES}.bias"), &[width])?;
    file.expect(CLASS, &[1, 1, width])?;
    let count = file.shape(POSITIONS)?.get(1).copied().unwrap_or(0);
    let positions = count.saturating_sub(1).isqrt().max(1);
    file.expect(POSITIONS, &[1, positions * positions + 1, width])?;
    let hidden = file.shape(&format!("encoder.layer.0.{}.bias", names.mlp[0]))?.first().copied().unwrap_or(0);
    let mut blocks = 0;
    while blocks == 0 || file.has(&format!("encoder.layer.{blocks}.{}.weight", names.norms[0])) {
        let block = |name: &str| format!("encoder.layer.{blocks}.{name}");
        let attention = ATTENTION.map(|name| (name, [width, width]));
        for (name, [outputs, inputs]) in
            attention.into_iter().chain([(names.mlp[0], [hidden, width]), (names.mlp[1], [width, hidden])])
        {
            file.expect(&block(&format!("{name}.weight")), &[outputs, inputs])?;
            file.expect(&block(&format!("{name}.bias")), &[outputs])?;
        }
        for name in names.norms {
            file.norm(&block(name), width)?;
        }
        for name in names.scales.iter().flatten() {
            file.expect(&block(name), &[width])?;
        }
        blocks += 1;
    }
    file.norm(NORM, width)?;
    let is_dinov2 = names.scales.is_some();
    Ok(Architecture {
        name: format!("{family} of {blocks} blocks of {width} features, patches of {patch_size} pixels"),
        normalisation: if is_dinov2 { Normalisation::IMAGENET } else { Normalisation::HALF },
        layers: Layers::Transformer(Transformer {
            prefix: file.name(""),
            names,
            width,
            hidden,
            blocks,
            heads: if width == HUGE[0] { HUGE[1] } else { width / HEAD },
            patch_size,
            positions,
            cells: positions,
            epsilon: if is_dinov2 { 1e-6 } else { 1e-12 },
            mean_of_patches: is_dinov2,
        }),
    })
}

impl Transformer {
    /// Number of parameters for the positions of the images here, with LayerScale folded into the layers before it.
    pub fn parameters(&self) -> usize {
        let Self { width, hidden, .. } = *self;
        let linear = 4 * (width * width + width) + 2 * width * hidden + width + hidden;
        let patches = 3 * self.patch_size.pow(2) * width + width;
        // The class token and its position are one vector.
        patches + (self.cells.pow(2) + 1) * width + self.blocks * (linear + 4 * width) + 2 * width
    }

    /// Number of outputs of all layers for an image, and of the largest block's input and outputs.
    pub fn activations(&self) -> (usize, usize) {
        let tokens = self.cells.pow(2) + 1;
        // Two normalisations, four layers of attention, two sums and the output of the MLP; its hidden features twice.
        let block = tokens * (9 * self.width + 2 * self.hidden);
        (self.blocks * block + 2 * tokens * self.width, block)
    }
}

/// Positions `[from², width]` of a square, interpolated to `[to², width]` as `torch.nn.functional.interpolate` does with
/// `mode="bicubic"` and `align_corners=False` (Keys 1981, a = -0.75; cells beyond the edge are those of the edge).
pub fn interpolate(positions: &[f32], width: usize, from: usize, to: usize) -> Vec<f32> {
    if from == to {
        return positions.to_vec();
    }
    const A: f64 = -0.75;
    let near = |x: f64| ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0;
    let far = |x: f64| ((A * x - 5.0 * A) * x + 8.0 * A) * x - 4.0 * A;
    let taps: Vec<[(usize, f64); 4]> = (0..to)
        .map(|cell| {
            let at = (cell as f64 + 0.5) * from as f64 / to as f64 - 0.5;
            let t = at - at.floor();
            let weights = [far(t + 1.0), near(t), near(1.0 - t), far(2.0 - t)];
            std::array::from_fn(|tap| {
                let cell = at.floor() as i64 + tap as i64 - 1;
                (cell.clamp(0, from as i64 - 1) as usize, weights[tap])
            })
        })
        .collect();
    let mut out = Vec::with_capacity(to * to * width);
    for (rows, columns) in taps.iter().flat_map(|rows| taps.iter().map(move |columns| (rows, columns))) {
        let value = |feature: usize| {
            let row = |row: usize| -> f64 {
                columns
                    .iter()
                    .map(|(column, weight)| weight * f64::from(positions[(row * from + column) * width + feature]))
                    .sum()
            };
            rows.iter().map(|(at, weight)| weight * row(*at)).sum::<f64>() as f32
        };
        out.extend((0..width).map(value));
    }
    out
}
