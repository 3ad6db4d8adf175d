//! ResNet (He et al. 2016) of basic blocks (18, 34) or bottlenecks with the stride in the 3 x 3 convolution (50, 101, 152).

use super::tensors::TensorShapes;
use super::{Architecture, Convolution, Convolutions, Family, Layers, Normalisation, Unit};

pub(super) const FAMILY: Family = Family {
    name: "resnet",
    markers: &[
        ("embedder.embedder.convolution.weight", "Hugging Face"),
        ("layer1.0.conv1.weight", "torchvision, timm"),
    ],
    read,
};

/// Names of the tensors of a library.
struct Names {
    /// Kernel and normalisation of the first convolution.
    stem: [&'static str; 2],
    /// Names in a block, with the number of the convolution.
    layer: fn(&str, usize) -> [String; 2],
    /// Beginning of the names of block `block` of stage `stage`, both from 0.
    block: fn(usize, usize) -> String,
    shortcut: [&'static str; 2],
}

const TORCHVISION: Names = Names {
    stem: ["conv1.weight", "bn1"],
    layer: |block, number| [format!("{block}.conv{}.weight", number + 1), format!("{block}.bn{}", number + 1)],
    block: |stage, block| format!("layer{}.{block}", stage + 1),
    shortcut: ["downsample.0.weight", "downsample.1"],
};

const HUGGING_FACE: Names = Names {
    stem: ["embedder.embedder.convolution.weight", "embedder.embedder.normalization"],
    layer: |block, number| {
        [format!("{block}.layer.{number}.convolution.weight"), format!("{block}.layer.{number}.normalization")]
    },
    block: |stage, block| format!("encoder.stages.{stage}.layers.{block}"),
    shortcut: ["shortcut.convolution.weight", "shortcut.normalization"],
};

fn read(file: &mut TensorShapes) -> Result<Architecture, String> {
    let names = if file.has(HUGGING_FACE.stem[0]) { HUGGING_FACE } else { TORCHVISION };
    file.ignore(&["fc.", "classifier."]);
    let stem = file.convolution(names.stem, 3, [7, 2], false)?;
    let mut channels = stem.channels[1];
    let mut units = vec![Unit { pooled: true, ..Unit::plain(vec![stem]) }];
    let mut layers = 2;
    for stage in 0..4 {
        let first = (names.block)(stage, 0);
        let sizes: &[usize] = if file.has(&(names.layer)(&first, 2)[0]) { &[1, 3, 1] } else { &[3, 3] };
        // At least one, whose missing tensor is named.
        for number in 0.. {
            let block = (names.block)(stage, number);
            if number > 0 && !file.has(&(names.layer)(&block, 0)[0]) {
                break;
            }
            let stride = if stage > 0 && number == 0 { 2 } else { 1 };
            units.push(residual(file, &names, &block, channels, (sizes, stride))?);
            channels = units.last().and_then(|unit| unit.layers.last()).map_or(0, |layer| layer.channels[1]);
            layers += sizes.len();
        }
    }
    Ok(Architecture {
        name: format!("ResNet-{layers}"),
        normalisation: Normalisation::IMAGENET,
        layers: Layers::Convolutions(Convolutions { epsilon: 1e-5, same_padding: false, activation_max: None, units }),
    })
}

/// Block of convolutions of these sizes. The first of size 3 has the stride.
fn residual(
    file: &mut TensorShapes,
    names: &Names,
    block: &str,
    inputs: usize,
    (sizes, stride): (&[usize], usize),
) -> Result<Unit, String> {
    let mut layers: Vec<Convolution> = Vec::new();
    let at = sizes.iter().position(|size| *size == 3);
    for (number, size) in sizes.iter().enumerate() {
        let inputs = layers.last().map_or(inputs, |layer| layer.channels[1]);
        let [kernel, norm] = (names.layer)(block, number);
        let stride = if Some(number) == at { stride } else { 1 };
        let layer = file.convolution([&kernel, &norm], inputs, [*size, stride], false)?;
        layers.push(Convolution { rectified: number + 1 < sizes.len(), ..layer });
    }
    let outputs = layers.last().map_or(inputs, |layer| layer.channels[1]);
    let shortcut = match stride > 1 || outputs != inputs {
        true => {
            let [kernel, norm] = names.shortcut.map(|name| format!("{block}.{name}"));
            let layer = file.convolution([&kernel, &norm], inputs, [1, stride], false)?;
            file_outputs(&layer, outputs)?;
            Some(Convolution { rectified: false, ..layer })
        }
        false => None,
    };
    Ok(Unit { shortcut, residual: true, rectified: true, ..Unit::plain(layers) })
}

/// Checks that a shortcut has the channels of its block.
fn file_outputs(shortcut: &Convolution, outputs: usize) -> Result<(), String> {
    match shortcut.channels[1] == outputs {
        true => Ok(()),
        false => Err(format!(
            "has `{}` of shape {:?}, expected {outputs} outputs, as of its block",
            shortcut.kernel,
            shortcut.shape()
        )),
    }
}
