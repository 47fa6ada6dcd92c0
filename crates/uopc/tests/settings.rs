//! Settings from environment variables: the values they take, and the errors.

use std::ffi::OsString;
use std::path::Path;

use uopc::compile::Engine;
use uopc::debug::{DeviceChoice, Dump, Schedule, Settings, VARIABLES};

fn read(vars: &[(&str, &str)]) -> Result<Settings, String> {
    let vars = vars
        .iter()
        .map(|&(n, v)| (OsString::from(n), OsString::from(v)));
    Settings::from_vars(vars).map_err(|e| e.to_string())
}

#[test]
fn an_empty_environment_gives_the_defaults() {
    assert_eq!(read(&[]), Ok(Settings::default()));
    assert_eq!(read(&[("PATH", "/bin"), ("UOPC_FUEL", "")]), read(&[]));
}

#[test]
fn each_variable_sets_its_field() {
    let settings = read(&[
        ("UOPC_DUMP", "after:kernelize"),
        ("UOPC_VERIFY", "1"),
        ("UOPC_TIME", "1"),
        ("UOPC_TRACE", "t"),
        ("UOPC_DISABLE", "mul_one, add_zero,"),
        ("UOPC_FUEL", "12"),
        ("UOPC_SCHEDULE", "plain"),
        ("UOPC_SEARCH", "5"),
        ("UOPC_DEVICE", "interp"),
        ("UOPC_THREADS", "3"),
        ("CC", "clang -m64"),
        ("UOPC_CACHE_DIR", "c"),
        ("UOPC_CACHE_LIMIT", "3M"),
        ("UOPC_MEMORY_LIMIT", "512M"),
    ])
    .expect("all values are valid");
    assert_eq!(settings.dump, Dump::After("kernelize".into()));
    assert!(settings.verify && settings.time);
    assert_eq!(settings.trace.as_deref(), Some(Path::new("t")));
    assert_eq!(Vec::from_iter(&settings.disable), ["add_zero", "mul_one"]);
    assert_eq!(settings.fuel, Some(12));
    assert_eq!(settings.schedule, Schedule::Plain);
    assert_eq!(settings.search, 5);
    assert_eq!(settings.device, DeviceChoice::Interp);
    assert_eq!(settings.threads, Some(3));
    assert_eq!(settings.cc.as_deref(), Some("clang -m64"));
    assert_eq!(settings.cache_dir.as_deref(), Some(Path::new("c")));
    assert_eq!(settings.cache_limit, 3 << 20);
    assert_eq!(settings.memory_limit, Some(512 << 20));
}

#[test]
fn the_cache_lies_in_the_users_cache_folder() {
    let folder = |vars| read(vars).expect("valid").cache_dir;
    let from_home = folder(&[("HOME", "/home/me")]).expect("a folder");
    assert!(from_home.starts_with("/home/me") && from_home.ends_with("uopc"));
    let moved = folder(&[("XDG_CACHE_HOME", "/cache"), ("HOME", "/home/me")]);
    assert_eq!(moved.as_deref(), Some(Path::new("/cache/uopc")));
    let relative = folder(&[("XDG_CACHE_HOME", "cache"), ("HOME", "/home/me")]);
    assert_eq!(relative, Some(from_home));
}

#[test]
fn a_value_that_is_not_accepted_is_an_error_that_lists_those_that_are() {
    let error = |name, value| read(&[(name, value)]).expect_err("not valid");
    assert_eq!(
        error("UOPC_SCHEDULE", "fast"),
        "UOPC_SCHEDULE: \"fast\" is not valid; use default or plain"
    );
    for (name, value) in [
        ("UOPC_DUMP", "after:"),
        ("UOPC_DUMP", "kernelize"),
        ("UOPC_VERIFY", "yes"),
        ("UOPC_TIME", "2"),
        ("UOPC_FUEL", "-1"),
        ("UOPC_SEARCH", "-1"),
        ("UOPC_SEARCH", "65"),
        ("UOPC_DEVICE", "cuda"),
        ("UOPC_THREADS", "0"),
        ("UOPC_THREADS", "257"),
        ("UOPC_THREADS", "all"),
        ("UOPC_CACHE_LIMIT", "1T"),
        ("UOPC_CACHE_LIMIT", "99999999999G"),
    ] {
        let variable = VARIABLES.iter().find(|v| v.name == name).expect("listed");
        assert!(error(name, value).ends_with(&format!("use {}", variable.values)));
    }
}

#[test]
fn a_misspelt_variable_is_an_error() {
    let error = read(&[("UOPC_FEUL", "3")]).expect_err("no such variable");
    assert!(error.starts_with("UOPC_FEUL is no setting; these are: UOPC_DUMP, "));
}

#[test]
fn names_of_rules_and_passes_are_checked_by_who_knows_them() {
    let check = |name, value| {
        let settings = read(&[(name, value)]).expect("valid as far as is known");
        let checked = settings.check_names(&["mul_one"], &["simplify", "kernelize"]);
        checked.map_err(|e| e.to_string())
    };
    assert_eq!(check("UOPC_DISABLE", "mul_one,kernelize"), Ok(()));
    assert_eq!(check("UOPC_DUMP", "after:simplify"), Ok(()));
    assert_eq!(
        check("UOPC_DISABLE", "mul_two"),
        Err(
            "UOPC_DISABLE: there is no rule or pass \"mul_two\"; the rules are mul_one; \
             the passes are simplify, kernelize"
                .into()
        )
    );
    assert_eq!(
        check("UOPC_DUMP", "after:tile"),
        Err("UOPC_DUMP: there is no pass \"tile\"; the passes are simplify, kernelize".into())
    );
}

#[test]
fn an_engine_refuses_names_that_do_not_exist() {
    let disable = ["mul_one", "mul_two"].map(String::from).into();
    let settings = Settings {
        device: DeviceChoice::Interp,
        disable,
        ..Settings::default()
    };
    let error = Engine::new(settings).err().expect("there is no mul_two");
    let text = error.to_string();
    assert!(text.starts_with("UOPC_DISABLE: there is no rule or pass \"mul_two\"; the rules are "));
    assert!(
        text.contains(" mul_one, ") && text.contains(" kernelize, "),
        "{text}"
    );
}

#[test]
fn only_passes_that_keep_the_form_can_be_left_out() {
    let without = |pass: &str| {
        let disable = [pass.to_string()].into();
        let settings = Settings {
            device: DeviceChoice::Interp,
            disable,
            ..Settings::default()
        };
        Engine::new(settings).map(|_| ())
    };
    for pass in ["strip_detach", "simplify", "simplify_loops", "schedule"] {
        without(pass).unwrap();
    }
    assert_eq!(
        without("rangeify").unwrap_err().to_string(),
        "UOPC_DISABLE: rangeify can't be left out, as it makes the loop graph; the passes that \
         can are strip_detach, simplify, order, simplify_loops, schedule"
    );
}
