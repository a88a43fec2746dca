# Hazard ratios of textbook effects with survival::coxph, and the word that follows from the interval.
# Rscript benchmarks/r/textbook.R tests/validation [METABRIC.csv]
library(survival)
given <- commandArgs(TRUE)
path <- file.path(given[1], "textbook_effects.csv")
effects <- read.csv(path, colClasses = "character")
halves <- 4 / sqrt(2 * pi)
for (i in seq_len(nrow(effects))) {
  e <- effects[i, ]
  file <- file.path(given[1], "r", "cohorts", paste0(e$cohort, ".csv.gz"))
  if (!file.exists(file)) file <- given[2]
  if (is.na(file)) next
  data <- read.csv(file)
  event <- as.integer(data$status == as.integer(e$event))
  x <- data[[paste0("x.", e$exposure)]]
  contrast <- 1
  if (startsWith(e$comparison, "per_sd")) {
    if (e$comparison == "per_sd:rank") x <- rank(x)
    x <- as.numeric(scale(x))
    contrast <- halves
  } else if (e$comparison == "per_doubling") {
    x <- log2(x)
    contrast <- halves * sd(x)
  } else if (e$comparison == "trend") {
    x <- match(x, sort(unique(x)))
    contrast <- halves * sd(x, na.rm = TRUE)
  } else {
    cut <- median(x, na.rm = TRUE)
    if (length(unique(na.omit(x))) == 2) cut <- min(x, na.rm = TRUE)
    if (startsWith(e$cut, "fixed")) cut <- as.numeric(sub("fixed:", "", e$cut))
    x <- as.integer(x > cut)
  }
  if (e$level == "low") x <- -x
  terms <- paste0("data$x.", strsplit(e$covariates, " ")[[1]], collapse = " + ")
  fit <- coxph(as.formula(paste("Surv(data$time, event) ~ x +", terms)))
  found <- exp(c(coef(fit)[1], confint(fit)[1, ]))
  effects[i, c("hr", "lower", "upper")] <- sprintf("%.4f", found)
  effects[i, "word"] <- if (found[3] < 1.5^(1 / contrast)) "small_effect" else "supported"
}
write.csv(effects, path, row.names = FALSE, quote = FALSE)
