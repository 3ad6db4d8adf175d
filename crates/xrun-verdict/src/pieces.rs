//! Piecewise linear fit of a series, in as many pieces as are justified.

/// Points that a series is reduced to.
const POINTS: usize = 60;
/// Smallest number of points of a piece.
const PIECE_MIN: usize = 3;
/// Cap on the knees.
const KNEES_MAX: usize = 4;
/// Smallest improvement by a knee: squared residuals that it removes, in those that remain per point.
const KNEE: f64 = 16.0;
/// Coefficients of a fit: level, slope, and change of slope at each knee.
const TERMS: usize = 2 + KNEES_MAX;

/// Continuous piecewise linear least-squares fit.
pub struct Pieces {
    /// Positions between two pieces, in ascending order.
    pub knees: Vec<usize>,
    coefficients: [f64; TERMS],
    residuals: f64,
}

/// Means of groups of values, at most 60, and the number of values in a group; groups are complete but for the first.
pub fn means(values: &[f64]) -> (Vec<f64>, usize) {
    let stride = values.len().div_ceil(POINTS).max(1);
    let mean = |group: &[f64]| group.iter().sum::<f64>() / group.len() as f64;
    (values.rchunks(stride).rev().map(mean).collect(), stride)
}

impl Pieces {
    /// Fits a continuous line with as many knees as are justified.
    pub fn of(points: &[f64]) -> Self {
        let places = PIECE_MIN..points.len().saturating_sub(PIECE_MIN);
        let best = |candidates: &mut dyn Iterator<Item = Vec<usize>>| {
            let fits = candidates.map(|knees| Self::with(points, knees));
            fits.min_by(|a, b| a.residuals.total_cmp(&b.residuals))
        };
        let improves = |with: &Self, without: &Self| {
            without.residuals - with.residuals > KNEE * with.residuals / points.len() as f64
        };
        let mut fit = Self::with(points, Vec::new());
        // Every third place is near enough for two knees: the fit is moved afterwards.
        let coarse = places.clone().step_by(PIECE_MIN);
        let pairs = coarse.clone().flat_map(|first| {
            coarse.clone().skip_while(move |second| *second <= first).map(move |second| vec![first, second])
        });
        let near = |pair: &Self| {
            let (first, second) = (pair.knees[0], pair.knees[1]);
            let moved = (first - 1..=first + 1)
                .flat_map(|first| (second - 1..=second + 1).map(move |second| vec![first, second]));
            best(&mut { moved }).unwrap_or_else(|| Self::with(points, pair.knees.clone()))
        };
        let pair = best(&mut { pairs }).map(|pair| near(&pair));
        let candidates = [best(&mut places.clone().map(|knee| vec![knee])), pair];
        for candidate in candidates.into_iter().flatten() {
            if improves(&candidate, &fit) {
                fit = candidate;
            }
        }
        while fit.knees.len() < KNEES_MAX {
            let with = |place: usize| {
                let mut knees = fit.knees.clone();
                knees.insert(knees.partition_point(|knee| *knee < place), place);
                knees
            };
            let is_apart = |place: &usize| fit.knees.iter().all(|knee| knee.abs_diff(*place) >= PIECE_MIN);
            match best(&mut places.clone().filter(is_apart).map(with)) {
                Some(next) if improves(&next, &fit) => fit = next,
                _ => break,
            }
        }
        fit
    }

    fn with(points: &[f64], knees: Vec<usize>) -> Self {
        let size = 2 + knees.len();
        let mut system = [[0.0; TERMS + 1]; TERMS];
        for (at, value) in points.iter().enumerate() {
            let terms = terms(at, &knees);
            for row in 0..size {
                for column in 0..size {
                    system[row][column] += terms[row] * terms[column];
                }
                system[row][TERMS] += terms[row] * value;
            }
        }
        let mut fit = Self { knees, coefficients: solved(system, size), residuals: 0.0 };
        fit.residuals = points.iter().enumerate().map(|(at, value)| (value - fit.value(at)).powi(2)).sum();
        fit
    }

    /// Mean slope of the fit between two positions.
    pub fn slope(&self, from: usize, to: usize) -> f64 {
        (self.value(to) - self.value(from)) / (to - from) as f64
    }

    fn value(&self, at: usize) -> f64 {
        terms(at, &self.knees).iter().zip(&self.coefficients).map(|(term, coefficient)| term * coefficient).sum()
    }
}

fn terms(at: usize, knees: &[usize]) -> [f64; TERMS] {
    std::array::from_fn(|term| match term {
        0 => 1.0,
        1 => at as f64,
        _ => knees.get(term - 2).map_or(0.0, |knee| at.saturating_sub(*knee) as f64),
    })
}

/// Solves the first `size` equations by elimination; the last column has the right-hand sides.
fn solved(mut system: [[f64; TERMS + 1]; TERMS], size: usize) -> [f64; TERMS] {
    for pivot in 0..size {
        let best = (pivot..size).max_by(|a, b| system[*a][pivot].abs().total_cmp(&system[*b][pivot].abs()));
        system.swap(pivot, best.unwrap_or(pivot));
        let row = system[pivot];
        if row[pivot].abs() < 1e-9 {
            return [0.0; TERMS];
        }
        for other in (0..size).filter(|other| *other != pivot) {
            let factor = system[other][pivot] / row[pivot];
            (0..=TERMS).for_each(|column| system[other][column] -= factor * row[column]);
        }
    }
    std::array::from_fn(|at| if at < size { system[at][TERMS] / system[at][at] } else { 0.0 })
}
