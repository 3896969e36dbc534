//! The bench runs to its end on a hundredth of its load, and writes down what it measured.

use std::process::Command;

#[test]
fn quick_bench_writes_its_figures() {
    let folder = tempfile::tempdir().unwrap();
    let output = folder.path().join("bench.json");
    let run = Command::new(env!("CARGO_BIN_EXE_bench"))
        .args(["--quick", "--output"])
        .arg(&output)
        .output()
        .unwrap();
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
    let document: serde_json::Value = serde_json::from_slice(&std::fs::read(&output).unwrap()).unwrap();
    let figures = document["figures"].as_array().unwrap();
    assert_eq!(figures.len(), 11);
    assert!(
        figures
            .iter()
            .all(|figure| figure["value"].as_f64().is_some_and(|value| value > 0.0)),
        "{document:#}"
    );
}
