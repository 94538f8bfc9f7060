"""The statistics once more, written as their papers define them, in loops that nobody could call fast."""


def pairs_won(up, down):
    """The AUC by its meaning: the share of (positive, negative) pairs that are ordered rightly, ties one half."""
    return sum((x > y) + 0.5 * (x == y) for x in up for y in down) / (len(up) * len(down))


def obuchowski(positive, scores, group):
    """Covariance matrix of the AUCs of several scores on the same clusters, cluster by cluster (Obuchowski 1997)."""
    names = sorted(set(group))
    n_models = len(scores)
    up = {i: [k for k in range(len(group)) if group[k] == i and positive[k]] for i in names}
    down = {i: [k for k in range(len(group)) if group[k] == i and not positive[k]] for i in names}
    all_up = [k for i in names for k in up[i]]
    all_down = [k for i in names for k in down[i]]
    m, n = len(all_up), len(all_down)

    def psi(x, y):
        return 1.0 if x > y else 0.5 if x == y else 0.0

    area, v10, v01 = [], [], []
    for s in scores:
        area.append(sum(psi(s[j], s[k]) for j in all_up for k in all_down) / (m * n))
        v10.append({i: sum(psi(s[j], s[k]) for j in up[i] for k in all_down) / n for i in names})
        v01.append({i: sum(psi(s[j], s[k]) for k in down[i] for j in all_up) / m for i in names})

    clusters, with_up, with_down = len(names), sum(bool(up[i]) for i in names), sum(bool(down[i]) for i in names)
    covariance = [[0.0] * n_models for _ in range(n_models)]
    for r in range(n_models):
        for s in range(n_models):
            s10 = s01 = s11 = s11_turned = 0.0
            for i in names:
                x_r, x_s = v10[r][i] - len(up[i]) * area[r], v10[s][i] - len(up[i]) * area[s]
                y_r, y_s = v01[r][i] - len(down[i]) * area[r], v01[s][i] - len(down[i]) * area[s]
                s10 += x_r * x_s
                s01 += y_r * y_s
                s11 += x_r * y_s
                s11_turned += x_s * y_r
            s10 *= with_up / ((with_up - 1) * m)
            s01 *= with_down / ((with_down - 1) * n)
            s11 *= clusters / (clusters - 1)
            s11_turned *= clusters / (clusters - 1)
            covariance[r][s] = s10 / m + s01 / n + (s11 + s11_turned) / (m * n)
    return area, covariance


def hand_till(label, prob):
    """M of Hand & Till (2001), eq. 7, over all pairs of classes."""
    classes = sorted(set(label))
    total = 0.0
    for i in classes:
        for j in classes:
            if i < j:
                of_i = [p for p, k in zip(prob, label, strict=True) if k == i]
                of_j = [p for p, k in zip(prob, label, strict=True) if k == j]
                a_ij = pairs_won([p[i] for p in of_i], [p[i] for p in of_j])
                a_ji = pairs_won([p[j] for p in of_j], [p[j] for p in of_i])
                total += (a_ij + a_ji) / 2
    return 2 * total / (len(classes) * (len(classes) - 1))


def nadeau_bengio(differences, n_train, n_test):
    """The t statistic, from its definition."""
    j = len(differences)
    mean = sum(differences) / j
    variance = sum((d - mean) ** 2 for d in differences) / (j - 1)
    return mean / ((1 / j + n_test / n_train) * variance) ** 0.5


def holm(p):
    """Adjusted p: the largest over all smaller p-values of p times the hypotheses not yet rejected."""
    order = sorted(range(len(p)), key=lambda k: p[k])
    adjusted = [0.0] * len(p)
    for rank, k in enumerate(order):
        adjusted[k] = max(min(1.0, (len(p) - r) * p[order[r]]) for r in range(rank + 1))
    return adjusted
