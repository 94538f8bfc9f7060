# Golden values of R's pROC (and of base R) for tests/metrics. Made once; the tests read the JSON and need no R.
#   Rscript tests/oracles/proc.R > tests/oracles/proc.json        (Debian: r-cran-proc)
# The data are drawn here and written down beside the values, so that no random generator has to agree.
suppressPackageStartupMessages(library(pROC))
options(digits = 17)

text <- function(x) {
  if (is.list(x)) {
    inner <- paste0('"', names(x), '": ', vapply(x, text, ""))
    return(paste0("{", paste(inner, collapse = ", "), "}"))
  }
  if (is.character(x)) numbers <- paste0('"', x, '"') else numbers <- format(as.numeric(x), digits = 17, trim = TRUE)
  if (length(x) == 1) numbers else paste0("[", paste(numbers, collapse = ", "), "]")
}

set.seed(20)
case <- function(n, share, shift, levels) {
  positive <- as.integer(runif(n) < share)
  latent <- rnorm(n) + shift * positive
  # Levels make ties; the second model hears the same latent score through another noise.
  a <- round((latent + rnorm(n)) * levels) / levels
  b <- round((latent + 1.5 * rnorm(n)) * levels) / levels
  one <- roc(positive, a, direction = "<", quiet = TRUE)
  other <- roc(positive, b, direction = "<", quiet = TRUE)
  test <- roc.test(one, other, method = "delong", paired = TRUE)
  list(
    positive = positive, a = a, b = b,
    auc_a = as.numeric(auc(one)), auc_b = as.numeric(auc(other)),
    var_a = var(one, method = "delong"), var_b = var(other, method = "delong"),
    cov = cov(one, other, method = "delong"),
    ci_a = as.numeric(ci.auc(one, method = "delong")),  # not on the logit scale: low, value, high
    z = as.numeric(test$statistic), p = as.numeric(test$p.value)
  )
}

multi <- function(n) {
  label <- sample(c("a", "b", "c"), n, replace = TRUE, prob = c(0.5, 0.3, 0.2))
  raw <- matrix(rexp(3 * n), n) * (1 + 1.5 * outer(label, c("a", "b", "c"), "=="))
  prob <- round(raw / rowSums(raw), 2)  # ties
  colnames(prob) <- c("a", "b", "c")
  found <- multiclass.roc(label, prob, quiet = TRUE)
  list(
    label = match(label, c("a", "b", "c")) - 1,
    prob_a = prob[, 1], prob_b = prob[, 2], prob_c = prob[, 3],
    hand_till = as.numeric(found$auc)
  )
}

table <- matrix(c(30, 7, 1, 12), 2)  # 7 and 1 discordant pairs
answers <- list(
  made_with = paste0(R.version.string, ", pROC ", packageVersion("pROC")),
  small = case(30, 0.4, 1.0, 2),
  large = case(300, 0.3, 1.5, 1000),
  multiclass = multi(80),
  mcnemar_chi2 = mcnemar.test(table, correct = FALSE)$p.value,
  mcnemar_exact = binom.test(1, 8)$p.value,
  clopper_pearson = as.numeric(binom.test(81, 263)$conf.int),
  wilson = as.numeric(prop.test(81, 263, correct = FALSE)$conf.int),
  holm_in = c(0.01, 0.02, 0.03, 0.04, 0.05, 0.0004),
  holm_out = p.adjust(c(0.01, 0.02, 0.03, 0.04, 0.05, 0.0004), "holm")
)
cat(text(answers), "\n", sep = "")
