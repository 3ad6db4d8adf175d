//! Painter of the generated images: a shape on a noisy ground, in whole numbers: the same bytes on every machine.

use rand::{Rng, RngExt};

use xrun_core::dataset::sample::HostImage;

/// The shapes, by the word that texts have for them.
pub const SHAPES: [&str; 4] = ["circle", "square", "triangle", "cross"];
/// The colours: the word that texts have for each, and red, green and blue from 0 to 255.
pub const COLOURS: [(&str, [i32; 3]); 6] = [
    ("red", [214, 40, 40]),
    ("green", [44, 160, 60]),
    ("blue", [40, 80, 220]),
    ("yellow", [240, 214, 40]),
    ("purple", [140, 50, 180]),
    ("orange", [245, 140, 30]),
];
/// The places of a shape in the image, by the words that texts have for them.
pub const PLACES: [&str; 4] = ["top left", "top right", "bottom left", "bottom right"];
/// Number of sizes.
pub const SIZES: u32 = 3;

/// Lengths within a shape are in parts of its radius.
const UNIT: i64 = 1024;
/// Parts of a pixel.
const PART: i64 = 64;
/// Turns by 0, 5, 10, 15 and 20 degrees: cosine and sine in parts of 4096.
const TURNS: [(i64, i64); 5] = [(4096, 0), (4080, 357), (4034, 711), (3956, 1060), (3849, 1401)];
/// Radius of each size and the farthest that a shape is moved, in thousandths of the side.
const RADII: [i64; SIZES as usize] = [90, 130, 180];
const MOVED: i64 = 35;
/// Colour of a mark.
const DARK: [i32; 3] = [20, 20, 24];
/// Grains of the ground's noise along a side.
const GRAINS: usize = 64;

/// A second thing to see in a shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mark {
    /// A dark dot in the middle.
    Dot,
    /// A dark stripe across it.
    Stripe,
}

/// Content of an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scene {
    /// Index into [`SHAPES`].
    pub shape: usize,
    /// Index into [`COLOURS`].
    pub colour: usize,
    /// Index into [`PLACES`].
    pub place: usize,
    /// 1 to [`SIZES`].
    pub size: u32,
    /// Mark in the shape, if any.
    pub mark: Option<Mark>,
}

impl Scene {
    /// Any of a trained pair of shape and colour, or any of an unseen one.
    pub fn draw(random: &mut impl Rng, unseen: bool) -> Self {
        let pairs: Vec<(usize, usize)> = (0..SHAPES.len())
            .flat_map(|shape| (0..COLOURS.len()).map(move |colour| (shape, colour)))
            .filter(|(shape, colour)| is_unseen(*shape, *colour) == unseen)
            .collect();
        let (shape, colour) = pairs[random.random_range(0..pairs.len())];
        let place = random.random_range(0..PLACES.len());
        let size = random.random_range(1..=SIZES);
        let mark = match random.random_range(0..4_u32) {
            0 => Some(Mark::Dot),
            1 => Some(Mark::Stripe),
            _ => None,
        };
        Self { shape, colour, place, size, mark }
    }

    /// A field of the answer as JSON, by its name.
    pub fn field(&self, name: &str) -> String {
        match name {
            "shape" => format!("\"{}\"", SHAPES[self.shape]),
            "colour" => format!("\"{}\"", COLOURS[self.colour].0),
            "place" => format!("\"{}\"", PLACES[self.place]),
            "size" => self.size.to_string(),
            _ => match self.mark {
                None => "null".into(),
                Some(Mark::Dot) => "\"dot\"".into(),
                Some(Mark::Stripe) => "\"stripe\"".into(),
            },
        }
    }

    /// The image, `side` pixels wide and high. Where it lies within its quarter, its hue, its turn and the ground are
    /// drawn.
    pub fn paint(&self, random: &mut impl Rng, side: usize) -> HostImage {
        let length = side as i64 * PART;
        let mut moved = || random.random_range(-MOVED..=MOVED);
        let quarter = |second: bool| if second { 3 } else { 1 };
        let centre = |second: bool, moved: i64| length * quarter(second) / 4 + length * moved / 1000;
        let (x, y) = (centre(self.place % 2 == 1, moved()), centre(self.place >= 2, moved()));
        let radius = length * RADII[self.size as usize - 1] / 1000;
        let (cosine, sine) = TURNS[random.random_range(0..TURNS.len())];
        let sine = if random.random() { sine } else { -sine };
        let hue: [i32; 3] = std::array::from_fn(|_| random.random_range(-15..=15));
        let grey = random.random_range(95..=165);
        let ground: [i32; 3] = std::array::from_fn(|_| grey + random.random_range(-12..=12));
        // A few large grains instead of one a pixel: a large image stays a small file.
        let grain = side.div_ceil(GRAINS);
        let across = side.div_ceil(grain);
        let noise: Vec<i32> = (0..across * across).map(|_| random.random_range(-10..=10)).collect();
        let colour = COLOURS[self.colour].1;
        let colour: [i32; 3] = std::array::from_fn(|channel| colour[channel] + hue[channel]);
        let mut rgb = Vec::with_capacity(side * side * 3);
        for row in 0..side {
            for column in 0..side {
                let mut sum = [0; 3];
                for (dx, dy) in [(16, 16), (48, 16), (16, 48), (48, 48)] {
                    let (dx, dy) = (column as i64 * PART + dx - x, row as i64 * PART + dy - y);
                    let turned = |a: i64, b: i64| (a * cosine + b * sine) / 4096 * UNIT / radius;
                    let (u, v) = (turned(dx, dy), turned(dy, -dx));
                    let seen = match () {
                        () if !self.covers(u, v) => ground,
                        () if self.is_marked(u, v) => DARK,
                        () => colour,
                    };
                    sum.iter_mut().zip(seen).for_each(|(sum, value)| *sum += value);
                }
                let noise = noise[row / grain * across + column / grain];
                rgb.extend(sum.map(|sum| (sum / 4 + noise).clamp(0, 255) as u8));
            }
        }
        HostImage { width: side, height: side, rgb: rgb.into() }
    }

    /// Returns whether a point is in the shape; `v` grows downwards.
    fn covers(&self, u: i64, v: i64) -> bool {
        let (across, along) = (u.abs(), v.abs());
        match self.shape {
            0 => u * u + v * v < UNIT * UNIT,
            1 => across < 860 && along < 860,
            2 => v < 780 && v > -980 && across * 1000 < (v + 980) * 580,
            _ => across.max(along) < 980 && across.min(along) < 330,
        }
    }

    /// Returns whether a point of the shape has the colour of the mark.
    fn is_marked(&self, u: i64, v: i64) -> bool {
        match self.mark {
            None => false,
            Some(Mark::Dot) => u * u + v * v < 420 * 420,
            Some(Mark::Stripe) => v.abs() < 200,
        }
    }
}

/// Returns whether a pair of shape and colour is never trained on: 6 of 24.
pub fn is_unseen(shape: usize, colour: usize) -> bool {
    (shape + colour) % 4 == 3
}
