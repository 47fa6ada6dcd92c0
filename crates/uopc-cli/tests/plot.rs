//! The picture of a training run: complete, inside its frame, the same everywhere.

use uopc_cli::plot::{Point, png, save, svg};

const LOSS: [u8; 3] = [0xc4, 0x4e, 0x2f];
const ACCURACY: [u8; 3] = [0x1f, 0x6f, 0xb4];

fn course(epochs: usize) -> Vec<Point> {
    let point = |epoch: usize| {
        let t = epoch as f64;
        Point {
            epoch,
            loss: 2.0 / t,
            test_accuracy: 1.0 - 0.3 / t,
        }
    };
    (1..=epochs).map(point).collect()
}

/// The pixels of a PNG, in rows.
fn decode(file: &[u8]) -> (usize, Vec<[u8; 3]>) {
    let decoder = png::Decoder::new(std::io::Cursor::new(file));
    let mut reader = decoder.read_info().unwrap();
    let mut bytes = vec![0; reader.output_buffer_size().unwrap()];
    let frame = reader.next_frame(&mut bytes).unwrap();
    assert_eq!((frame.width, frame.height), (2400, 1000));
    let pixels = bytes.chunks_exact(3).map(|p| [p[0], p[1], p[2]]).collect();
    (frame.width as usize, pixels)
}

fn count(pixels: &[[u8; 3]], color: [u8; 3]) -> usize {
    pixels.iter().filter(|p| **p == color).count()
}

#[test]
fn svg_names_everything() {
    let text = svg(&course(20), "digits", "batch 64 & seed <0>").unwrap();
    for part in [
        "digits",
        "batch 64 &amp; seed &lt;0&gt;",
        "Training loss",
        "Test accuracy",
        "cross-entropy (nats per sample)",
        "correctly classified (%)",
        "epoch",
        "last 0.1000,  best 0.1000 in epoch 20",
        "last 98.50%,  best 98.50% in epoch 20",
    ] {
        assert!(text.contains(part), "{part} is missing");
    }
    assert!(text.trim_end().ends_with("</svg>"));
}

#[test]
fn png_shows_both_curves_inside_the_frame() {
    for epochs in [1, 2, 20, 1000] {
        let (width, pixels) = decode(&png(&course(epochs), "digits", "seed 0").unwrap());
        let (left, right): (Vec<_>, Vec<_>) = pixels
            .iter()
            .enumerate()
            .partition(|(i, _)| i % width < width / 2);
        let left: Vec<[u8; 3]> = left.into_iter().map(|p| *p.1).collect();
        let right: Vec<[u8; 3]> = right.into_iter().map(|p| *p.1).collect();
        assert!(
            count(&left, LOSS) > 200 && count(&left, ACCURACY) == 0,
            "{epochs} epochs"
        );
        assert!(
            count(&right, ACCURACY) > 200 && count(&right, LOSS) == 0,
            "{epochs} epochs"
        );
        // Nothing touches the border: no text is cut off.
        let height = pixels.len() / width;
        let border = |i: usize| {
            let (x, y) = (i % width, i / width);
            x < 8 || y < 8 || x >= width - 8 || y >= height - 8
        };
        let stray = (0..pixels.len()).find(|&i| border(i) && pixels[i] != [255; 3]);
        assert_eq!(stray, None, "{epochs} epochs");
    }
}

#[test]
fn the_same_run_gives_the_same_bytes() {
    let points = course(7);
    assert_eq!(
        png(&points, "a", "b").unwrap(),
        png(&points, "a", "b").unwrap()
    );
    assert_eq!(
        svg(&points, "a", "b").unwrap(),
        svg(&points, "a", "b").unwrap()
    );
}

#[test]
fn values_that_are_not_finite_leave_a_gap() {
    let mut points = course(9);
    points[3].loss = f64::NAN;
    points[8].loss = f64::INFINITY;
    points[0].test_accuracy = f64::NAN;
    let text = svg(&points, "gap", "").unwrap();
    assert!(
        text.contains("last 0.2500,  best 0.2500 in epoch 8"),
        "the last finite value counts"
    );
    assert!(!text.contains("NaN") && !text.contains("inf"));
    let pieces = |color: &str| {
        let line = |l: &&str| l.starts_with("<polyline") && l.contains(color);
        text.lines().filter(line).count()
    };
    // Two pieces of the loss, one of the accuracy, and a sample of each beside its name.
    assert_eq!((pieces("#C44E2F"), pieces("#1F6FB4")), (3, 2));
}

#[test]
fn a_run_without_epochs_is_drawn_empty() {
    let text = svg(&[], "nothing yet", "").unwrap();
    assert_eq!(text.matches("no finite value").count(), 2);
}

#[test]
fn both_files_are_written() {
    let folder = tempfile::tempdir().unwrap();
    let [vector, pixels] = save(&course(3), "a", "b", folder.path()).unwrap();
    assert!(std::fs::read_to_string(vector).unwrap().starts_with("<svg"));
    assert!(std::fs::read(pixels).unwrap().starts_with(b"\x89PNG"));
}

#[test]
fn a_folder_that_is_none_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = save(&course(3), "a", "b", &file).unwrap_err().to_string();
    let path = file.join("training.svg");
    assert!(
        error.starts_with(&format!("{}: ", path.display())),
        "{error}"
    );
}
