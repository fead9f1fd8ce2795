"""Labels and taints of nodes are checked as Kubernetes checks them, and ours are reserved."""

from control_plane.domain.node_marks import RESERVED, Taint, TaintEffect, label_problem, taint_problem

KEYS = ("team", "Team_1", "a", "example.com/gpu.class", "a-b.c/x", "x" * 63, f"{'d' * 63}.example/x")
NOT_KEYS = ("", "-team", "team-", "a b", "x" * 64, "/x", "Example.com/x", "a..b/x", "a/b/c", "x/", "ü", "a\n")


def test_what_kubernetes_takes_as_a_label_is_taken() -> None:
    for key in KEYS:
        for value in ("", "vision", "v1.2_3-x", "y" * 63):
            assert label_problem({key: value}) is None, (key, value)
            assert taint_problem([Taint(key, value, TaintEffect.NO_SCHEDULE)]) is None, (key, value)


def test_what_kubernetes_refuses_is_refused_with_the_reason() -> None:
    for key in NOT_KEYS:
        assert label_problem({key: "x"}), key
        assert taint_problem([Taint(key, "x", TaintEffect.NO_EXECUTE)]), key
    for value in ("-x", "x-", "a b", "a/b", "y" * 64, "ü", "a\n"):
        problem = label_problem({"team": value})
        assert problem is not None, value
        assert "value" in problem, value


def test_keys_below_domains_of_kubernetes_k3s_and_ours_are_reserved() -> None:
    for domain in RESERVED:
        for prefix in (domain, f"node-restriction.{domain}", f"a.b.{domain}"):
            problem = label_problem({f"{prefix}/role": "x"})
            assert problem is not None, prefix
            assert "reserved" in problem, prefix
            assert taint_problem([Taint(f"{prefix}/role", "", TaintEffect.NO_SCHEDULE)]), prefix
        assert label_problem({f"not{domain}/role": "x"}) is None, domain


def test_one_key_has_one_taint_for_each_effect() -> None:
    both = [Taint("batch", "a", TaintEffect.NO_SCHEDULE), Taint("batch", "a", TaintEffect.NO_EXECUTE)]
    assert taint_problem(both) is None
    twice = [Taint("batch", "a", TaintEffect.NO_SCHEDULE), Taint("batch", "b", TaintEffect.NO_SCHEDULE)]
    assert "batch=b:NoSchedule" in (taint_problem(twice) or "")
