//! Pretrained backbones in a vision-language model.

use crate::vision_language::{backbone, chat, run};
use crate::workplace::Workplace;

#[test]
fn any_backbone_takes_the_place_of_the_vision_transformer() {
    let workplace = Workplace::new();
    chat(&workplace, &[]);
    for (kind, file, more) in [
        ("vit", "dinov2_tiny.bin", "backbone.vit.heads=2"),
        ("resnet", "resnet_tiny.pth", "model.vision-language.pixel_shuffle=1"),
        ("resnet", "resnet_tiny.pth", "backbone.resnet.stride=16"),
        ("efficientnet-lite", "efficientnet_lite_tiny.pth", "model.vision-language.pixel_shuffle=1"),
    ] {
        for frozen in [true, false] {
            let (weights, frozen_key) = (backbone(kind, file), format!("backbone.{kind}.frozen={frozen}"));
            let image_size = if kind == "vit" { 24 } else { 64 };
            let size = format!("dataset.image-text.image_size={image_size}");
            let shared = [
                "training.epochs=2",
                "training.max_steps=2",
                "checkpoint.every_steps=1",
                "checkpoint.keep_last=2",
                "memory.probe=false",
            ];
            let set = [&shared[..], &[&weights, &frozen_key, &size, more]].concat();
            let output = run(&workplace, &["mine.toml", "--name", kind, "-q"], &set);
            assert_eq!(output.code, 0, "{output:?}");
            let directory = workplace.latest(kind);
            let tensors = |step: u64| {
                let path = directory.join(format!("checkpoints/step_{step:08}/model.safetensors"));
                let bytes = std::fs::read(path).unwrap();
                let file = safetensors::SafeTensors::deserialize(&bytes).unwrap();
                let all = file.tensors().into_iter().map(|(name, tensor)| (name, tensor.data().to_vec()));
                all.collect::<std::collections::BTreeMap<_, _>>()
            };
            let (one, two) = (tensors(1), tensors(2));
            assert!(!one.keys().any(|name| name.starts_with("vision.")), "{file}");
            let equal = |start: &str| {
                one.iter().filter(|(name, _)| name.starts_with(start)).all(|(name, data)| two[name] == *data)
            };
            assert_eq!((equal("backbone."), equal("projector.")), (frozen, false), "{file}");
        }
    }
}
