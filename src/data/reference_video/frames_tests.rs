//! probe
use super::*;
#[test]
fn probe() {
    let folder = tempfile::tempdir().unwrap();
    let mut image = image::RgbImage::new(64, 48);
    for (x, y, p) in image.enumerate_pixels_mut() {
        *p = image::Rgb([(x * 4) as u8, (y * 5) as u8, (x * y) as u8]);
    }
    let at = folder.path().join("a.jpg");
    image.save(&at).unwrap();
    let whole = std::fs::read(&at).unwrap();
    for share in [0.3, 0.5, 0.7, 0.9, 0.99] {
        std::fs::write(&at, &whole[..(whole.len() as f64 * share) as usize]).unwrap();
        let d = image::ImageReader::open(&at).unwrap().with_guessed_format().unwrap().into_dimensions();
        eprintln!("jpg {share} dims {d:?} decode {:?}", decode(&at, Path::new("a.jpg")));
    }
    let at = folder.path().join("a.png");
    image.save(&at).unwrap();
    let whole = std::fs::read(&at).unwrap();
    for share in [0.3, 0.5, 0.7, 0.9, 0.99] {
        std::fs::write(&at, &whole[..(whole.len() as f64 * share) as usize]).unwrap();
        let d = image::ImageReader::open(&at).unwrap().with_guessed_format().unwrap().into_dimensions();
        eprintln!("png {share} dims {d:?} decode {:?}", decode(&at, Path::new("a.jpg")));
    }
    let deep = "<a>".repeat(200_000) + &"</a>".repeat(200_000);
    let t = std::time::Instant::now();
    let d = roxmltree::Document::parse(&deep);
    eprintln!("deep xml {:?} {:?}", d.map(|_| ()), t.elapsed());
    let bom = "\u{feff}<annotation/>";
    eprintln!("bom {:?}", roxmltree::Document::parse(bom).map(|_| ()));
    let deep = "[".repeat(10_000_000);
    eprintln!("{:?}", serde_json::from_str::<serde_json::Value>(&deep).map(|_| ()));
    #[derive(serde::Deserialize)]
    struct F {}
    eprintln!("{:?}", serde_json::from_str::<F>(&format!("{{\"x\":{deep}")).map(|_| ()));
}
