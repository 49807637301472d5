//! What a release is made of agrees on its version.

#![allow(clippy::unwrap_used, reason = "tests")]

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn file(name: &str) -> String {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(name);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

#[test]
fn every_file_that_names_the_version_names_this_one() {
    // The text before and after the version, in files that a release must change.
    let places = [
        ("CHANGELOG.md", "## [", "]"),
        ("Dockerfile", "-t orrery:", " "),
        ("compose.yaml", "${ORRERY_VERSION:-", "}"),
        ("clients/javascript/package.json", "\"version\": \"", "\""),
        ("clients/python/pyproject.toml", "version = \"", "\""),
        ("clients/junit/pom.xml", "<version>", "</version>"),
        ("clients/junit/README.md", "<version>", "</version>"),
        ("clients/testcontainers/README.md", "orrery-", "-image"),
        ("clients/testcontainers/aspire/AppHost.cs", "\"orrery\", \"", "\""),
        ("clients/testcontainers/dotnet/OrreryContainer.cs", "\"orrery:", "\""),
        ("clients/testcontainers/go/orrery.go", "\"orrery:", "\""),
        ("clients/testcontainers/java/src/test/java/OrreryContainer.java", "\"orrery:", "\""),
        ("clients/testcontainers/node/orrery-container.mjs", "\"orrery:", "\""),
        ("clients/testcontainers/python/orrery_container.py", "\"orrery:", "\""),
        ("docs/install.md", "orrery-", "-x86_64"),
        ("packaging/action/action.yaml", "default: ", "\n"),
        ("packaging/gitlab/orrery.gitlab-ci.yml", "orrery:", "\n"),
        ("packaging/helm/orrery/Chart.yaml", "appVersion: ", "\n"),
        ("packaging/kubernetes/embedded.yaml", "image: orrery:", "\n"),
        ("packaging/kubernetes/postgres.yaml", "image: orrery:", "\n"),
    ];
    for (name, before, after) in places {
        let expected = format!("{before}{VERSION}{after}");
        assert!(file(name).contains(&expected), "{name} has no `{}`", expected.trim_end());
    }
    assert!(file("packaging/helm/orrery/Chart.yaml").contains(&format!("\nversion: {VERSION}\n")));
}

/// As <https://keepachangelog.com/en/1.1.0/> has it.
#[test]
fn the_changelog_keeps_its_form() {
    let changelog = file("CHANGELOG.md");
    let mut releases = Vec::new();
    for line in changelog.lines() {
        if let Some(kind) = line.strip_prefix("### ") {
            let kinds = ["Added", "Changed", "Deprecated", "Removed", "Fixed", "Security"];
            assert!(kinds.contains(&kind), "{line}");
            assert!(!releases.is_empty(), "{line} is before the first release");
        } else if let Some(release) = line.strip_prefix("## ") {
            let (name, date) = release.split_once(" - ").unwrap_or((release, ""));
            assert!(name.starts_with('[') && name.ends_with(']'), "{line}");
            let is_date = date.len() == 10 && date.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-');
            assert!(is_date || date.is_empty(), "{line}");
            releases.push(name.trim_matches(['[', ']']));
        }
    }
    assert_eq!(releases.first().copied(), Some("Unreleased"));
    assert!(releases.contains(&VERSION), "{releases:?}");
}
