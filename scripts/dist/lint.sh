#!/usr/bin/env bash
# Checks what is written for other tools: the manifests and the chart for Kubernetes, the Compose file, the workflows.
set -euo pipefail
cd "$(dirname "$0")/../.."
# shellcheck source=scripts/dist/common.sh
source scripts/dist/common.sh

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
tools=$(environment dist-lint kubernetes-validate pyyaml)
valid() { "$tools/bin/kubernetes-validate" --strict "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "the schemas of Kubernetes"; }; }
valid packaging/kubernetes/*.yaml
pass "the manifests fit the schemas of Kubernetes"

# From the Go module proxy, in a fixed version each.
go_tool() { # name, module, version
    [[ -x $cache/go-tools/$1 ]] || GOBIN=$cache/go-tools go install "$2@$3" 2>"$work/log" || { cat "$work/log" >&2; fail "$1 cannot be built"; }
    "$cache/go-tools/$1" "${@:4}"
}
helm() { go_tool helm helm.sh/helm/v3/cmd/helm v3.16.4 "$@"; }
chart=packaging/helm/orrery
helm lint --strict "$chart" >"$work/log" 2>&1 || { cat "$work/log" >&2; fail "helm lint"; }
render() { helm template shop "$chart" --kube-version 1.30.0 "${@:2}" >"$work/$1.yaml"; }
render embedded
render gateway --set mode=gateway --set store=postgres://user@host/orrery --set key=c2VjcmV0
render given --set existingSecret=mine --set networkPolicy.enabled=false --set env.ORRERY_CONTAINERS=shop/orders:/customer \
    --set 'certificateNames={a.example,b.example}' --set persistence.storageClass=fast
valid "$work"/*.yaml
kinds() { grep -h ^kind: "$work/$1.yaml" | sort | tr -d '\n'; }
[[ $(kinds embedded) == "kind: NetworkPolicykind: PodDisruptionBudgetkind: Servicekind: StatefulSet" ]] || fail "the chart: $(kinds embedded)"
[[ $(kinds gateway) == "kind: Deploymentkind: NetworkPolicykind: PodDisruptionBudgetkind: Secretkind: Service" ]] || fail "the chart: $(kinds gateway)"
# Direct mode: in the service, in the pod, and in the policy.
for file in "$work"/embedded.yaml "$work"/gateway.yaml packaging/kubernetes/*.yaml; do
    [[ $(grep -cE '[pP]ort: 10250\b' "$file") == 3 ]] || fail "$file does not expose direct mode"
done
! render refused --set mode=gateway 2>/dev/null || fail "the chart accepts gateways without a store"
pass "the chart renders, and what it renders fits the schemas of Kubernetes"

"$tools/bin/python" - compose.yaml packaging/gitlab/orrery.gitlab-ci.yml packaging/action/action.yaml <<'PYTHON'
import sys, yaml
compose, gitlab, action = (yaml.safe_load(open(name)) for name in sys.argv[1:])
service = compose["services"]["orrery"]
assert service["image"] and service["read_only"] and service["cap_drop"] == ["ALL"]
assert gitlab[".orrery"]["services"][0]["command"][0] == "serve"
assert action["runs"]["using"] == "composite"
PYTHON
go_tool actionlint github.com/rhysd/actionlint/cmd/actionlint v1.7.7 .github/workflows/*.yaml
pass "Compose file, GitLab snippet, action and workflows"
