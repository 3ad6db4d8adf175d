//! Painter of generated objects and backgrounds: pure functions of their arguments.

use rand::{Rng, RngExt};

/// Appearance of a class: a shape, a texture, and two colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Appearance {
    /// Index into [`SHAPES`].
    pub shape: usize,
    /// Index into [`TEXTURES`].
    pub texture: usize,
    /// Two indices into [`COLOURS`]: of the object, and of its texture.
    pub colours: (usize, usize),
}

/// Shapes, by the word in a class's name.
pub const SHAPES: [&str; 8] = ["disc", "square", "triangle", "star", "ring", "cross", "diamond", "half-disc"];
/// Textures, by the word in a class's name.
pub const TEXTURES: [&str; 4] = ["plain", "striped", "checked", "dotted"];
/// Colours: the word in a class's name, and red, green and blue from 0 to 255.
pub const COLOURS: [(&str, [f32; 3]); 10] = [
    ("red", [214.0, 40.0, 40.0]),
    ("green", [44.0, 160.0, 60.0]),
    ("blue", [40.0, 80.0, 220.0]),
    ("yellow", [240.0, 214.0, 40.0]),
    ("purple", [140.0, 50.0, 180.0]),
    ("cyan", [40.0, 200.0, 220.0]),
    ("orange", [245.0, 140.0, 30.0]),
    ("white", [245.0, 245.0, 245.0]),
    ("black", [20.0, 20.0, 24.0]),
    ("pink", [245.0, 130.0, 190.0]),
];

impl Appearance {
    /// All appearances, in a fixed order.
    pub fn all() -> Vec<Self> {
        let mut all = Vec::new();
        for shape in 0..SHAPES.len() {
            for texture in 0..TEXTURES.len() {
                for first in 0..COLOURS.len() {
                    let seconds = (0..COLOURS.len()).filter(|second| *second != first);
                    all.extend(
                        seconds
                            .map(|second| Self { shape, texture, colours: (first, second) })
                            .filter(Self::looks_like_no_other),
                    );
                }
            }
        }
        all
    }

    /// Selects one of indistinguishable appearances: checks mirrored are checks with their colours exchanged, and the
    /// second colour of a plain ring falls into its hole.
    fn looks_like_no_other(&self) -> bool {
        let (first, second) = self.colours;
        match (TEXTURES[self.texture], SHAPES[self.shape]) {
            ("plain", "ring") => second == (first + 1) % COLOURS.len(),
            ("checked", _) => first < second,
            _ => true,
        }
    }

    /// A name that tells what it looks like.
    pub fn name(&self) -> String {
        let (first, second) = (COLOURS[self.colours.0].0, COLOURS[self.colours.1].0);
        format!("{}-{first}-{second}-{}", TEXTURES[self.texture], SHAPES[self.shape])
    }

    /// Returns whether a point is inside the shape; `x` and `y` in units of its radius, `y` down.
    fn covers(&self, x: f32, y: f32) -> bool {
        let radius = x.hypot(y);
        match self.shape {
            0 => radius < 1.0,
            1 => x.abs() < 0.85 && y.abs() < 0.85,
            2 => y < 0.75 && y > -0.95 && x.abs() < (y + 0.95) * 0.58,
            3 => radius < 0.62 + 0.38 * (5.0 * x.atan2(-y)).cos(),
            4 => (0.5..1.0).contains(&radius),
            5 => x.abs().max(y.abs()) < 0.95 && x.abs().min(y.abs()) < 0.34,
            6 => x.abs() * 1.3 + y.abs() < 1.0,
            _ => radius < 1.0 && y < 0.15,
        }
    }

    /// Colour of a point inside the shape. Plain objects have a rim of the second colour.
    fn colour(&self, x: f32, y: f32) -> [f32; 3] {
        let odd = |value: f32| value.floor().rem_euclid(2.0) >= 1.0;
        let second = match self.texture {
            0 => x.hypot(y) < 0.42,
            1 => odd((x + y) * 2.2),
            2 => odd(x * 2.4) != odd(y * 2.4),
            _ => {
                let cell = |value: f32| (value * 2.5).rem_euclid(1.0) - 0.5;
                cell(x).hypot(cell(y)) < 0.33
            }
        };
        COLOURS[if second { self.colours.1 } else { self.colours.0 }].1
    }
}

/// An image being painted, with the number of the topmost thing at each pixel.
#[derive(Clone, Debug)]
pub struct Canvas {
    /// Pixels along each edge.
    pub side: usize,
    pixels: Vec<[f32; 3]>,
    /// 0 is the background.
    top: Vec<u8>,
}

/// Pose of an object, in pixels and radians.
#[derive(Clone, Copy, Debug)]
pub struct Pose {
    /// Distance of its centre from the left edge.
    pub x: f32,
    /// Distance of its centre from the upper edge.
    pub y: f32,
    /// Distance from its centre to its outline.
    pub radius: f32,
    /// Rotation in radians.
    pub angle: f32,
}

/// A background of drifting colour and clutter.
#[derive(Clone, Debug)]
pub struct Background {
    base: [f32; 3],
    waves: Vec<Wave>,
    clutter: Vec<Clutter>,
    drift: (f32, f32),
}

#[derive(Clone, Copy, Debug)]
struct Wave {
    direction: (f32, f32),
    phase: f32,
    strength: [f32; 3],
}

#[derive(Clone, Copy, Debug)]
struct Clutter {
    centre: (f32, f32),
    size: (f32, f32),
    round: bool,
    colour: [f32; 3],
}

impl Background {
    /// Draws one for images of `side` by `side` pixels.
    pub fn draw(random: &mut impl Rng, side: usize) -> Self {
        let side = side as f32;
        let grey = random.random_range(70.0..170.0f32);
        let mut muted =
            |spread: f32| -> [f32; 3] { std::array::from_fn(|_| grey + random.random_range(-spread..spread)) };
        let base = muted(35.0);
        let colours: Vec<[f32; 3]> = (0..9).map(|_| muted(60.0)).collect();
        let waves = (0..4)
            .map(|_| {
                let length = random.random_range(0.35..1.2) * side;
                let angle = random.random_range(0.0..std::f32::consts::TAU);
                let step = std::f32::consts::TAU / length;
                Wave {
                    direction: (angle.cos() * step, angle.sin() * step),
                    phase: random.random_range(0.0..std::f32::consts::TAU),
                    strength: std::array::from_fn(|_| random.random_range(-16.0..16.0)),
                }
            })
            .collect();
        let clutter = colours
            .into_iter()
            .map(|colour| Clutter {
                centre: (random.random_range(-0.2..1.2) * side, random.random_range(-0.2..1.2) * side),
                size: (random.random_range(0.04..0.22) * side, random.random_range(0.04..0.22) * side),
                round: random.random_bool(0.5),
                colour,
            })
            .collect();
        let drift = (random.random_range(-0.012..0.012) * side, random.random_range(-0.012..0.012) * side);
        Self { base, waves, clutter, drift }
    }

    fn colour(&self, x: f32, y: f32) -> [f32; 3] {
        let covering = self.clutter.iter().rev().find(|thing| {
            let (dx, dy) = ((x - thing.centre.0) / thing.size.0, (y - thing.centre.1) / thing.size.1);
            if thing.round { dx.hypot(dy) < 1.0 } else { dx.abs().max(dy.abs()) < 1.0 }
        });
        let mut colour = covering.map_or(self.base, |thing| thing.colour);
        for wave in &self.waves {
            let height = (x * wave.direction.0 + y * wave.direction.1 + wave.phase).sin();
            for (channel, strength) in colour.iter_mut().zip(wave.strength) {
                *channel += strength * height;
            }
        }
        colour
    }
}

impl Canvas {
    /// The background at a time, in frames.
    pub fn new(side: usize, background: &Background, time: f32) -> Self {
        let mut pixels = Vec::with_capacity(side * side);
        for y in 0..side {
            for x in 0..side {
                let (dx, dy) = (background.drift.0 * time, background.drift.1 * time);
                pixels.push(background.colour(x as f32 + dx, y as f32 + dy));
            }
        }
        Self { side, pixels, top: vec![0; side * side] }
    }

    /// Paints an object over what is there; returns the pixels that it covers, those outside the image included.
    pub fn object(&mut self, number: u8, appearance: &Appearance, pose: Pose) -> usize {
        const CORNERS: [(f32, f32); 4] = [(0.25, 0.25), (0.75, 0.25), (0.25, 0.75), (0.75, 0.75)];
        let (sine, cosine) = pose.angle.sin_cos();
        let reach = pose.radius.ceil() as i64 + 1;
        let (left, top) = (pose.x.floor() as i64, pose.y.floor() as i64);
        let mut covered = 0;
        for y in top - reach..=top + reach {
            for x in left - reach..=left + reach {
                let mut colour = [0.0; 3];
                let mut hits = 0.0;
                for (cx, cy) in CORNERS {
                    let (dx, dy) = ((x as f32 + cx - pose.x) / pose.radius, (y as f32 + cy - pose.y) / pose.radius);
                    let (u, v) = (dx * cosine + dy * sine, dy * cosine - dx * sine);
                    if appearance.covers(u, v) {
                        hits += 1.0;
                        let point = appearance.colour(u, v);
                        colour.iter_mut().zip(point).for_each(|(sum, value)| *sum += value);
                    }
                }
                if hits >= 2.0 {
                    covered += 1;
                }
                if hits > 0.0 && (0..self.side as i64).contains(&x) && (0..self.side as i64).contains(&y) {
                    let at = y as usize * self.side + x as usize;
                    let fraction = hits / CORNERS.len() as f32;
                    for (channel, sum) in self.pixels[at].iter_mut().zip(colour) {
                        *channel = *channel * (1.0 - fraction) + sum / hits * fraction;
                    }
                    if hits >= 2.0 {
                        self.top[at] = number;
                    }
                }
            }
        }
        covered
    }

    /// A bar in front of everything: `at` and `width` in pixels.
    pub fn bar(&mut self, vertical: bool, at: f32, width: f32, colour: [f32; 3]) {
        for y in 0..self.side {
            for x in 0..self.side {
                let along = if vertical { x } else { y } as f32;
                if (at..at + width).contains(&along) {
                    self.pixels[y * self.side + x] = colour;
                    self.top[y * self.side + x] = u8::MAX;
                }
            }
        }
    }

    /// Pixels of a thing that can be seen, and the smallest box around them as left, top, width, height.
    pub fn visible(&self, number: u8) -> (usize, Option<[usize; 4]>) {
        let mut count = 0;
        let (mut left, mut top, mut right, mut bottom) = (usize::MAX, usize::MAX, 0, 0);
        for (at, _) in self.top.iter().enumerate().filter(|(_, top)| **top == number) {
            let (x, y) = (at % self.side, at / self.side);
            count += 1;
            (left, right) = (left.min(x), right.max(x + 1));
            (top, bottom) = (top.min(y), bottom.max(y + 1));
        }
        (count, (count > 0).then(|| [left, top, right - left, bottom - top]))
    }

    /// 8-bit RGB, with the noise and the brightness of a camera.
    pub fn finish(&self, random: &mut impl Rng, brightness: f32) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(self.pixels.len() * 3);
        for pixel in &self.pixels {
            let noise = random.random_range(-7.0..7.0f32);
            bytes.extend(pixel.map(|channel| (channel * brightness + noise).clamp(0.0, 255.0) as u8));
        }
        bytes
    }
}
