//! The sign of the figures that people see. Effects are stored as fractions of speed on every meter; whatever shows one
//! converts it here, so that the same effect has the same sign everywhere.

use super::Meter;

impl Meter {
    /// Whether effects are shown as changes of speed, where more is better. Those of all other meters are shown as
    /// changes of the count or amount itself, where less is better.
    pub fn is_shown_as_speed(self) -> bool {
        matches!(self, Meter::Time | Meter::Cpu)
    }

    /// Converts a fraction of speed to the fraction that is shown: 0.81 (81 % more for the same instructions) is
    /// −0.45 (45 % fewer instructions). Never infinite.
    pub fn shown(self, speed: f64) -> f64 {
        if self.is_shown_as_speed() {
            return speed;
        }
        // Adding 0 removes the sign of a zero.
        (-speed / (1.0 + speed)).min(f64::MAX) + 0.0
    }

    /// Converts the ends of an interval likewise; the lower one comes first.
    pub fn shown_interval(self, (low, high): (f64, f64)) -> (f64, f64) {
        if self.is_shown_as_speed() {
            (low, high)
        } else {
            (self.shown(high), self.shown(low))
        }
    }

    /// Returns the quantity whose change is shown: `speed`, or what the meter measures.
    pub fn shown_quantity(self) -> &'static str {
        match self {
            Meter::Time => "speed",
            Meter::Cpu => "processor speed",
            meter => meter.noun(),
        }
    }

    /// Returns the word for an improvement, behind `is` or before [`Meter::noun`]: `faster`, `fewer`, `less`.
    pub fn better(self) -> &'static str {
        match self {
            Meter::Time | Meter::Cpu => "faster",
            Meter::Rss => "less",
            _ => "fewer",
        }
    }

    /// Returns the word for the opposite of [`Meter::better`].
    pub fn worse(self) -> &'static str {
        if self.is_shown_as_speed() {
            "slower"
        } else {
            "more"
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_shown_as_speed_and_counts_as_their_own_change() {
        assert_eq!(Meter::Time.shown(0.81), 0.81);
        assert_eq!(Meter::Cpu.shown_interval((-0.1, 0.2)), (-0.1, 0.2));
        let fewer = Meter::Instructions.shown(0.81);
        assert!((fewer + 0.4475).abs() < 1e-4, "{fewer}");
        let (low, high) = Meter::Instructions.shown_interval((-0.5, 0.25));
        assert_eq!((low, high), (-0.2, 1.0));
        for meter in Meter::ALL {
            let (low, high) = meter.shown_interval((-0.01, 0.02));
            assert!(low < 0.0 && high > 0.0, "{meter}");
            assert_eq!(meter.shown(0.01) > 0.0, meter.better() == "faster");
        }
    }

    #[test]
    fn a_shown_change_is_a_number_whatever_the_costs_are() {
        assert_eq!(Meter::Rss.shown(-1.0), f64::MAX);
        assert_eq!(Meter::Rss.shown(f64::MAX), -1.0);
        assert!(Meter::Rss.shown(0.0).is_sign_positive());
    }
}
